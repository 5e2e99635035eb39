//! Transcripts: the commands and outputs in a Markdown file, and whether a program still prints the
//! same.
//!
//! A transcript is the text of all fenced blocks marked `console`, in order:
//!
//! - `$ COMMAND` is a command, and `^C` stops the one that keeps running. A command whose line ends
//!   with a backslash goes on in the next line.
//! - The lines after it, up to the next of these, are what it prints on stdout and stderr.
//! - In such a line `...` matches any text, and alone any number of lines. Runs of blanks match
//!   one, because the width of a column depends on its content.

/// The marker of a block that is part of the transcript.
const FENCE: &str = "```console";

/// Matches anything.
const ANYTHING: &str = "...";

/// The last character of a line whose command goes on in the next line.
const CONTINUED: char = '\\';

/// One thing typed, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where in the file, counted from 1.
    pub line: usize,
    /// What was typed.
    pub typed: Input,
    /// What was seen, line by line; empty where it does not matter.
    pub expected: Vec<String>,
}

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A command of the shell.
    Command(String),
    /// Ctrl-C.
    Interrupt,
}

/// The part of a Markdown file under a heading, with all other lines empty, so that each line keeps
/// its number.
pub fn section(markdown: &str, heading: &str) -> String {
    let mut inside = false;
    let mut is_code = false;
    let mut kept = String::new();
    for line in markdown.lines() {
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with("## ") {
            inside = line == heading;
        }
        kept.push_str(if inside { line } else { "" });
        kept.push('\n');
    }
    kept
}

/// The steps of a Markdown file's transcript.
pub fn steps(markdown: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    let mut is_continued = false;
    for (at, text) in markdown.lines().enumerate() {
        if text.starts_with("```") {
            inside = !inside && text.trim_end() == FENCE;
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(Step { typed: Input::Command(command), .. }) =
            steps.last_mut().filter(|_| is_continued)
        {
            command.pop();
            command.push_str(text.trim_start().trim_end_matches(CONTINUED));
            is_continued = text.ends_with(CONTINUED);
            if is_continued {
                command.push(CONTINUED);
            }
            continue;
        }
        is_continued = text.starts_with("$ ") && text.ends_with(CONTINUED);
        let typed = match text.strip_prefix("$ ") {
            Some(command) => Some(Input::Command(command.to_owned())),
            None => (text == "^C").then_some(Input::Interrupt),
        };
        if let Some(typed) = typed {
            steps.push(Step { line: at + 1, typed, expected: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.expected.push(text.to_owned());
        }
    }
    steps
}

/// Whether `output` is what the transcript says.
pub fn agrees(expected: &[String], output: &str) -> bool {
    let lines: Vec<String> =
        output.lines().map(one_blank).filter(|line| !line.is_empty()).collect();
    let expected: Vec<String> =
        expected.iter().map(|line| one_blank(line)).filter(|line| !line.is_empty()).collect();
    lines_agree(&expected, &lines)
}

/// Takes the shortest run of lines for each `...`, and a longer one where the rest then fails.
fn lines_agree(expected: &[String], lines: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return lines.is_empty() };
    if first == ANYTHING {
        return (0..=lines.len()).any(|skipped| lines_agree(rest, &lines[skipped..]));
    }
    let Some((line, others)) = lines.split_first() else { return false };
    line_agrees(first, line) && lines_agree(rest, others)
}

fn line_agrees(expected: &str, line: &str) -> bool {
    let Some((start, rest)) = expected.split_once(ANYTHING) else { return expected == line };
    let Some(mut left) = line.strip_prefix(start) else { return false };
    let mut parts = rest.split(ANYTHING).peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    true
}

fn one_blank(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_console_blocks_are_read() {
        let markdown = "# Title\n\n```sh\n$ not this\n```\n\n```console\n$ a b\nseen\n\n$ c\n^C\nend\n\
                        ```\n$ nor this\n```console\n$ d\n```\n";
        let command = |line, command: &str, expected| Step {
            line,
            typed: Input::Command(command.into()),
            expected: lines(expected),
        };
        assert_eq!(
            steps(markdown),
            [
                command(8, "a b", "seen\n\n"),
                command(11, "c", ""),
                Step { line: 12, typed: Input::Interrupt, expected: lines("end") },
                command(17, "d", ""),
            ]
        );
    }

    #[test]
    fn a_command_goes_on_after_a_backslash() {
        let markdown = "```console\n$ a \\\n    b \\\n    c\nseen\n$ d\n```\n";
        let found = steps(markdown);
        let typed: Vec<_> = found.iter().map(|step| step.typed.clone()).collect();
        assert_eq!(typed, [Input::Command("a b c".into()), Input::Command("d".into())]);
        assert_eq!(found[0].expected, lines("seen"));
    }

    #[test]
    fn a_section_ends_at_the_next_heading_and_its_lines_keep_their_numbers() {
        let markdown = "# T\n## A\n```console\n$ a\n## x\n```\n## B\n```console\n$ b\n```\n";
        let of = |heading| steps(&section(markdown, heading));
        assert_eq!((of("## A").len(), of("## A")[0].line), (1, 4));
        assert_eq!((of("## B").len(), of("## B")[0].line), (1, 9));
        assert!(of("## C").is_empty());
    }

    #[test]
    fn an_answer_agrees_line_by_line() {
        for (expected, output) in [
            ("a b\nc", "a   b\nc\n"),
            ("a ... c", "a b c"),
            ("a ... c ... e", "a b c d e"),
            ("pod/x-...", "pod/x-1f"),
            ("...\nb\n...\nd", "a\nb\nc\nc\nd"),
            ("...", ""),
            ("a\n...\nb", "a\nb"),
            ("...b\n...", "ab\nmore\n"),
        ] {
            assert!(agrees(&lines(expected), output), "{expected:?} {output:?}");
        }
    }

    #[test]
    fn another_answer_does_not_agree() {
        for (expected, output) in [
            ("a", "a\nb"),
            ("a\nb", "a"),
            ("a ... c", "a b d"),
            ("...\nb", "b\na"),
            ("", "a"),
            ("a ... a", "a"),
        ] {
            assert!(!agrees(&lines(expected), output), "{expected:?} {output:?}");
        }
    }
}
