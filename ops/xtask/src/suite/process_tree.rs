//! A process with its threads and the processes below it, from `/proc`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Lines of the form `ID COMMAND`, each process below its starter, with the names of its threads. A
/// process that ends meanwhile is left out.
pub(super) fn describe(process: u32) -> String {
    let mut text = String::new();
    add(process, 0, &mut text);
    text
}

fn add(process: u32, depth: usize, text: &mut String) {
    let folder = Path::new("/proc").join(process.to_string());
    let Ok(command) = fs::read(folder.join("cmdline")) else { return };
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let indent = "  ".repeat(depth);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{indent}{process} {}", command.trim_end());
    let Ok(threads) = fs::read_dir(folder.join("task")) else { return };
    for thread in threads.flatten().map(|thread| thread.path()) {
        let read = |name| fs::read_to_string(thread.join(name)).unwrap_or_default();
        let _ = writeln!(text, "{indent}  thread {}", read("comm").trim_end());
        for child in read("children").split_whitespace().filter_map(|id| id.parse().ok()) {
            add(child, depth + 1, text);
        }
    }
}
