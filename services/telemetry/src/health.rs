//! Health in the form of the Kubernetes components: `livez` and `readyz`, each a list of named
//! checks.
//!
//! A process is live while a restart would not help it, and ready while it answers requests. An
//! edge without a hub is ready: it serves its replica.

use std::fmt::Write;
use std::sync::Arc;

/// The outcome of a check; the error is the reason of the failure.
type CheckResult = Result<(), String>;

/// The endpoint that a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// `livez`: every task runs. A liveness check counts for readiness too.
    Live,
    /// `readyz`: the process answers requests.
    Ready,
}

/// The checks of a process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Health {
    checks: Vec<Check>,
    warnings: Vec<Warnings>,
}

/// The warnings of a part, as they are now.
type Warnings = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: String,
    kind: CheckKind,
    run: Arc<dyn Fn() -> CheckResult + Send + Sync>,
}

/// The response to `livez` or `readyz`.
#[derive(Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// Whether every check passed, excluded ones aside.
    pub passed: bool,
    /// The text of the response.
    pub text: String,
}

/// The query of `livez` or `readyz`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HealthQuery {
    /// Whether the response lists every check.
    pub verbose: bool,
    /// Names of checks to leave out.
    pub excluded: Vec<String>,
}

impl CheckKind {
    fn name(self) -> &'static str {
        match self {
            Self::Live => "livez",
            Self::Ready => "readyz",
        }
    }
}

impl Health {
    /// Adds a check. `run` must not block.
    pub fn check(
        &mut self,
        kind: CheckKind,
        name: impl Into<String>,
        run: impl Fn() -> CheckResult + Send + Sync + 'static,
    ) {
        self.checks.push(Check { name: name.into(), kind, run: Arc::new(run) });
    }

    /// Adds warnings, which a verbose `readyz` lists. They fail no check. `read` must not block.
    pub fn warn(&mut self, read: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.warnings.push(Arc::new(read));
    }

    /// Runs the checks of `kind`.
    pub fn report(&self, kind: CheckKind, query: &HealthQuery) -> HealthReport {
        let mut lines = String::from("[+]ping ok\n");
        let mut passed = true;
        let checks = self.checks.iter().filter(|check| {
            // A process that is not live is not ready either.
            kind == CheckKind::Ready || check.kind == CheckKind::Live
        });
        for Check { name, run, .. } in checks {
            // Writing to a String cannot fail.
            let _ = if query.excluded.contains(name) {
                writeln!(lines, "[+]{name} excluded: ok")
            } else {
                match run() {
                    Ok(()) => writeln!(lines, "[+]{name} ok"),
                    Err(why) => {
                        passed = false;
                        writeln!(lines, "[-]{name} failed: {why}")
                    }
                }
            };
        }
        let is_unknown = |name: &&String| !self.checks.iter().any(|check| check.name == **name);
        for name in query.excluded.iter().filter(is_unknown) {
            let _ = writeln!(lines, "warn: no check {name:?} to exclude");
        }
        if kind == CheckKind::Ready {
            for warning in self.warnings.iter().flat_map(|read| read()) {
                let _ = writeln!(lines, "warn: {warning}");
            }
        }
        let text = match (passed, query.verbose) {
            (true, false) => "ok".to_owned(),
            (true, true) => lines + kind.name() + " check passed\n",
            (false, _) => lines + kind.name() + " check failed\n",
        };
        HealthReport { passed, text }
    }
}

impl HealthQuery {
    /// Parses a query string: `verbose` and any number of `exclude=NAME`.
    pub fn parse(text: &str) -> Self {
        let mut query = Self::default();
        for part in text.split('&') {
            match part.split_once('=').unwrap_or((part, "")) {
                ("verbose", value) => query.verbose = !matches!(value, "false" | "0"),
                ("exclude", name) => query.excluded.push(name.to_owned()),
                _ => {}
            }
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        let mut health = Health::default();
        health.check(CheckKind::Live, "node-1.edge", || Ok(()));
        health.check(CheckKind::Ready, "controller", || Err("it lists".to_owned()));
        health
    }

    fn report(kind: CheckKind, query: &str) -> HealthReport {
        health().report(kind, &HealthQuery::parse(query))
    }

    #[test]
    fn the_status_is_for_programs_and_the_lines_are_for_people() {
        let live = report(CheckKind::Live, "");
        assert_eq!(live, HealthReport { passed: true, text: "ok".to_owned() });
        let verbose = report(CheckKind::Live, "verbose");
        assert_eq!(verbose.text, "[+]ping ok\n[+]node-1.edge ok\nlivez check passed\n");
        let unready = report(CheckKind::Ready, "");
        assert!(!unready.passed);
        let lines =
            "[+]ping ok\n[+]node-1.edge ok\n[-]controller failed: it lists\nreadyz check failed\n";
        assert_eq!(unready.text, lines);
    }

    #[test]
    fn a_check_may_be_left_out() {
        let ready = report(CheckKind::Ready, "verbose=1&exclude=controller&exclude=disk");
        assert!(ready.passed);
        assert!(ready.text.contains("[+]controller excluded: ok\n"), "{}", ready.text);
        assert!(ready.text.contains("warn: no check \"disk\" to exclude\n"), "{}", ready.text);
    }

    #[test]
    fn a_warning_is_in_the_verbose_answer_and_fails_nothing() {
        let mut health = Health::default();
        health.warn(|| vec!["a right is missing".to_owned()]);
        let report = |kind, query| health.report(kind, &HealthQuery::parse(query));
        let ready = report(CheckKind::Ready, "verbose");
        assert_eq!(ready.text, "[+]ping ok\nwarn: a right is missing\nreadyz check passed\n");
        assert_eq!(report(CheckKind::Ready, "").text, "ok");
        assert!(!report(CheckKind::Live, "verbose").text.contains("right"));
    }
}
