//! The manual pages and the completions, which a test writes into `target/debug/manual`: files for
//! packagers, and no part of the command.
//!
//! *Owns*: the sections of a page, where the files go. *May not touch*: the text of the help, and
//! the exit codes (docs/exit-codes.md has them).

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::{Arguments, help};

/// Text for roff, as it is: no line is a request, and no character an escape.
fn plain(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    let line = |line: &str| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}\n"),
        false => format!("{line}\n"),
    };
    escaped.lines().map(line).collect()
}

/// The exit codes of a command with their meanings: its row in the table, or that of the command
/// that it belongs to, and what holds for all.
fn exit_codes(page: &str, name: &str) -> Vec<(String, String)> {
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let is_of =
        |row: &&Vec<&str>, name: &str| row[0].split(", ").any(|one| one.trim_matches('`') == name);
    let mut names = vec![name.trim_start_matches("inkstone ")];
    while let Some((above, _)) = names[names.len() - 1].rsplit_once(' ') {
        names.push(above);
    }
    let own = names.iter().find_map(|name| rows.iter().find(|row| is_of(row, name)));
    let own = own.unwrap_or_else(|| panic!("{name} has no row of exit codes"));
    let mut codes = vec![("0".to_owned(), own[1].to_owned()), ("1".to_owned(), own[2].to_owned())];
    for other in [own, &rows[0]].into_iter().flat_map(|row| row[3].split("; ")) {
        codes.extend(other.split_once(": ").map(|(code, says)| (code.into(), says.into())));
    }
    codes.sort_by_key(|(code, _)| code.parse::<u32>().unwrap_or(u32::MAX));
    codes
}

/// The page of a command: what clap makes of it, then its examples and its exit codes, as they are.
fn page(command: &Command, name: &str, codes: &str) -> Vec<u8> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let after = after.replace("\nTIME: ", "\n\nTIME: ");
    let man = clap_mangen::Man::new(command.clone().after_help(None::<&str>));
    let mut page = Vec::new();
    man.render(&mut page).expect("memory");
    let mut add = |text: String| page.extend(text.into_bytes());
    let (examples, notes): (Vec<&str>, Vec<&str>) =
        after.split("\n\n").partition(|paragraph| paragraph.starts_with("Examples:\n"));
    for examples in examples {
        let lines = plain(examples.trim_start_matches("Examples:\n"));
        add(format!(".SH EXAMPLES\n.nf\n{lines}.fi\n"));
    }
    if !notes.concat().is_empty() {
        let notes = notes.iter().map(|paragraph| format!(".PP\n{}", plain(paragraph)));
        add(format!(".SH NOTES\n{}", notes.collect::<String>()));
    }
    if !command.is_subcommand_required_set() {
        add(".SH \"EXIT STATUS\"\n".into());
        for (code, says) in exit_codes(codes, name) {
            add(format!(".TP\n{}{}", plain(&code), plain(&says.replace('`', ""))));
        }
    }
    page
}

/// Writes the page of each command, and returns their paths.
fn write_pages(command: &Command, name: &str, codes: &str, to: &Path, made: &mut Vec<PathBuf>) {
    let file = to.join(format!("{}.1", name.replace(' ', "-")));
    let command = command.clone().display_name(name.replace(' ', "-"));
    fs::write(&file, page(&command, name, codes)).expect("a page");
    made.push(file);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        if below.get_name() != "help" {
            write_pages(below, &format!("{name} {}", below.get_name()), codes, to, made);
        }
    }
}

#[test]
fn manual_pages_and_completions_are_made() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // This program is in `target/debug/deps`.
    let own = std::env::current_exe().expect("its path");
    let to = own.ancestors().nth(2).expect("a target directory").join("manual");
    fs::create_dir_all(&to).expect("a directory");
    let codes = fs::read_to_string(root.join("docs/exit-codes.md")).expect("the page");
    let mut definition = help::whole(Arguments::command());
    definition.build();
    let mut made = Vec::new();
    write_pages(&definition, "inkstone", &codes, &to, &mut made);
    assert!(made.len() > 25, "{made:?}");
    for name in ["inkstone.1", "inkstone-append.1", "inkstone-lab-experiment.1"] {
        let page = fs::read_to_string(to.join(name)).expect("a page");
        for part in [".TH ", ".SH EXAMPLES\n.nf\n", ".SH \"EXIT STATUS\"\n"] {
            assert!(page.contains(part) || name == "inkstone.1", "{name}: {part}");
        }
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = clap_complete::generate_to(shell, &mut definition, "inkstone", &to);
        let script = fs::read_to_string(script.expect("a script")).expect("text");
        for word in ["append", "file-systems", "keep-bytes", "powerloss"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn an_example_in_a_page_is_not_a_request_of_roff() {
    assert_eq!(plain(".a -b\n'c \\d"), "\\&.a \\-b\n\\&'c \\ed\n");
}
