"""The devices that programs are compiled and planned for: profiles as data, and what this machine is.

What a stage needs of a device is derived here from the profile. No stage's own logic belongs here, and no measuring.
"""
