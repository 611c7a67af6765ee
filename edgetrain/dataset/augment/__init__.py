"""Augmentation: training samples changed at random, to the same bits whenever the same epoch reads the same row.

kinds                                 what a sample is: a picture, sound, a series, a row of a table
operations                            the table: which key of `data.augment` does what to which kinds
geometry, colour, erasing, signals    the operations, by family
mixing                                two samples and their labels made one
randomness                            random numbers by (seed, epoch, row, purpose): batches do not matter
augmentation                          what a recipe asks for, checked against the data
examples                              pictures with what becomes of them, for people to look at
"""
