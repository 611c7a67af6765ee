//! AES-256-GCM for the page file, from Zig's standard library. Linked into programs whose pages are encrypted, and
//! called by sealed_pages.c alone. It neither allocates nor keeps anything.

const std = @import("std");
const Cipher = std.crypto.aead.aes_gcm.Aes256Gcm;

/// Encrypts `nbytes` to another place in memory, and writes the tag that binds them to `place`.
export fn edge_page_encrypt(
    to: [*]u8,
    tag: *[Cipher.tag_length]u8,
    from: [*]const u8,
    nbytes: usize,
    place: *const [16]u8,
    nonce: *const [Cipher.nonce_length]u8,
    key: *const [Cipher.key_length]u8,
) void {
    Cipher.encrypt(to[0..nbytes], tag, from[0..nbytes], place, nonce.*, key.*);
}

/// Decrypts `nbytes` where they are. Returns 0, or 1 where they, the tag or the place are not those of the encryption;
/// then they are not to be used.
export fn edge_page_decrypt(
    memory: [*]u8,
    nbytes: usize,
    tag: *const [Cipher.tag_length]u8,
    place: *const [16]u8,
    nonce: *const [Cipher.nonce_length]u8,
    key: *const [Cipher.key_length]u8,
) i32 {
    const content = memory[0..nbytes];
    Cipher.decrypt(content, content, tag.*, place, nonce.*, key.*) catch return 1;
    return 0;
}
