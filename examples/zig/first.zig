//! Opens a log, appends, reads back: ./first-zig DIRECTORY
const std = @import("std");
const ink = @import("inkstone.zig"); // Made of inkstone.h by `zig translate-c`.

fn well(code: ink.inkstone_code, failed: ?*ink.inkstone_error) !void {
    if (code == ink.INKSTONE_OK) return;
    std.debug.print("{s}\n", .{ink.inkstone_error_message(failed)});
    return error.Inkstone;
}

pub fn main(init: std.process.Init) !void {
    const arguments = try init.minimal.args.toSlice(init.arena.allocator());
    var failed: ?*ink.inkstone_error = null;
    defer ink.inkstone_error_free(failed);
    var log: ?*ink.inkstone_log = null;
    const path = if (arguments.len > 1) arguments[1] else "orders";
    try well(ink.inkstone_open(path, null, &log, &failed), failed);
    defer ink.inkstone_log_free(log);
    var lsn: u64 = 0;
    // Durable when it returns.
    try well(ink.inkstone_append_durable(log, "one order", 9, &lsn, &failed), failed);

    var reader: ?*ink.inkstone_reader = null;
    var cursor: ?*ink.inkstone_cursor = null;
    var record: ink.inkstone_record = undefined;
    try well(ink.inkstone_reader_of(log, &reader, &failed), failed);
    defer ink.inkstone_reader_free(reader);
    try well(ink.inkstone_cursor_new(reader, ink.inkstone_first(log), &cursor, &failed), failed);
    defer ink.inkstone_cursor_free(cursor);
    while (ink.inkstone_cursor_next(cursor, &record, &failed) == ink.INKSTONE_OK) {
        const bytes = @as([*]const u8, @ptrCast(record.data))[0..record.size];
        std.debug.print("{d}: {s}\n", .{ record.lsn, bytes });
    }
    try well(ink.inkstone_error_code(failed), failed); // At the end there is no error.
    try well(ink.inkstone_close(log, &failed), failed);
}
