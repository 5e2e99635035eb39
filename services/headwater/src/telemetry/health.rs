//! Health, as Kubernetes' own parts tell it: `livez` and `readyz`, each a list of named checks.
//!
//! Alive is a process that a restart would not help; ready is one that answers what it is asked.
//! An edge without a hub is ready: what it has, it gives.

use std::fmt::Write;
use std::sync::Arc;

/// What a check found: why it fails, if it does.
type Found = Result<(), String>;

/// Which question a check answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Does everything run that should? A check of life counts for readiness too.
    Live,
    /// Does it answer what it is asked?
    Ready,
}

/// The checks of a process. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Health {
    checks: Vec<Check>,
}

#[derive(Clone)]
struct Check {
    name: String,
    of: Question,
    look: Arc<dyn Fn() -> Found + Send + Sync>,
}

/// An answer to `livez` or `readyz`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Whether every check passed that was not excluded.
    pub(crate) passed: bool,
    /// What a person reads.
    pub(crate) text: String,
}

/// What the caller of `livez` or `readyz` wants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// A line for each check, passed or not.
    pub(crate) verbose: bool,
    /// Checks that do not count.
    pub(crate) excluded: Vec<String>,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Self::Live => "livez",
            Self::Ready => "readyz",
        }
    }
}

impl Health {
    /// Adds a check. `look` must answer at once.
    pub(crate) fn check(
        &mut self,
        of: Question,
        name: impl Into<String>,
        look: impl Fn() -> Found + Send + Sync + 'static,
    ) {
        self.checks.push(Check { name: name.into(), of, look: Arc::new(look) });
    }

    /// Looks at everything that the question is about.
    pub(crate) fn answer(&self, question: Question, asked: &Asked) -> Answer {
        let mut lines = String::from("[+]ping ok\n");
        let mut passed = true;
        let checks = self.checks.iter().filter(|check| {
            // What does not run is not ready either.
            question == Question::Ready || check.of == Question::Live
        });
        for Check { name, look, .. } in checks {
            // Writing to a String cannot fail.
            let _ = if asked.excluded.contains(name) {
                writeln!(lines, "[+]{name} excluded: ok")
            } else {
                match look() {
                    Ok(()) => writeln!(lines, "[+]{name} ok"),
                    Err(why) => {
                        passed = false;
                        writeln!(lines, "[-]{name} failed: {why}")
                    }
                }
            };
        }
        let is_known = |name: &&String| !self.checks.iter().any(|check| check.name == **name);
        for name in asked.excluded.iter().filter(is_known) {
            let _ = writeln!(lines, "warn: no check {name:?} to exclude");
        }
        let text = match (passed, asked.verbose) {
            (true, false) => "ok".to_owned(),
            (true, true) => lines + question.name() + " check passed\n",
            (false, _) => lines + question.name() + " check failed\n",
        };
        Answer { passed, text }
    }
}

impl Asked {
    /// What a query string says: `verbose` and any number of `exclude=NAME`.
    pub(crate) fn of_query(query: &str) -> Self {
        let mut asked = Self::default();
        for part in query.split('&') {
            match part.split_once('=').unwrap_or((part, "")) {
                ("verbose", value) => asked.verbose = !matches!(value, "false" | "0"),
                ("exclude", name) => asked.excluded.push(name.to_owned()),
                _ => {}
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        let mut health = Health::default();
        health.check(Question::Live, "node-1.edge", || Ok(()));
        health.check(Question::Ready, "controller", || Err("it lists".to_owned()));
        health
    }

    fn ask(question: Question, query: &str) -> Answer {
        health().answer(question, &Asked::of_query(query))
    }

    #[test]
    fn machines_read_the_status_and_people_the_lines() {
        let alive = ask(Question::Live, "");
        assert_eq!(alive, Answer { passed: true, text: "ok".to_owned() });
        let told = ask(Question::Live, "verbose");
        assert_eq!(told.text, "[+]ping ok\n[+]node-1.edge ok\nlivez check passed\n");
        let unready = ask(Question::Ready, "");
        assert!(!unready.passed);
        let lines =
            "[+]ping ok\n[+]node-1.edge ok\n[-]controller failed: it lists\nreadyz check failed\n";
        assert_eq!(unready.text, lines);
    }

    #[test]
    fn a_check_may_be_left_out() {
        let ready = ask(Question::Ready, "verbose=1&exclude=controller&exclude=disk");
        assert!(ready.passed);
        assert!(ready.text.contains("[+]controller excluded: ok\n"), "{}", ready.text);
        assert!(ready.text.contains("warn: no check \"disk\" to exclude\n"), "{}", ready.text);
    }
}
