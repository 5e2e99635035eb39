//! The parameters of a request, as a kubelet reads them. Pure.

use headwater_edged::runtime::StreamRequest;
use jiff::{SignedDuration, Timestamp};

/// The lines and bytes of a log that a client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on while the container writes.
    pub follow: bool,
    /// The run before the latest one.
    pub previous: bool,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Only the last lines.
    pub tail: Option<u64>,
    /// Only lines that were written since.
    pub since: Option<Timestamp>,
    /// At most so many bytes.
    pub bytes_max: Option<u64>,
    /// The output that is wanted.
    pub source: LogSource,
}

/// An output of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogSource {
    /// Both.
    #[default]
    All,
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
}

/// Why parameters are refused, in a kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A value has no valid form: 400.
    #[error("{{\"message\": \"Unable to decode query.\"}}")]
    Undecodable,
    /// A value is out of its range, or two exclude one another: 422.
    #[error("{{\"message\": \"Invalid request.\"}}")]
    Invalid,
    /// No stream is wanted: 400.
    #[error("you must specify at least 1 of stdin, stdout, stderr")]
    NoStream,
    /// No port is wanted: 400.
    #[error("query parameter \"port\" is required")]
    NoPort,
    /// This is no port: 400.
    #[error("unable to parse {0:?} as a port")]
    Port(String),
}

impl LogOptions {
    /// The options in a query; `now` is where `sinceSeconds` counts from.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn parse(query: &str, now: Timestamp) -> Result<Self, QueryError> {
        let mut options = Self::default();
        let (mut has_seconds, mut has_time) = (false, false);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "follow" => options.follow = flag(&value),
                "previous" => options.previous = flag(&value),
                "timestamps" => options.timestamps = flag(&value),
                // An earlier name; `all` is no limit.
                "tail" if value == "all" => options.tail = None,
                "tailLines" | "tail" => options.tail = Some(number(&value, 0)?),
                "limitBytes" => options.bytes_max = Some(number(&value, 1)?),
                "sinceSeconds" => {
                    let seconds = i64::try_from(number(&value, 1)?);
                    let seconds = seconds.map_err(|_| QueryError::Undecodable)?;
                    let since = now.checked_sub(SignedDuration::from_secs(seconds));
                    // Before all time is no limit.
                    options.since = since.ok();
                    has_seconds = true;
                }
                "sinceTime" => {
                    let since = value.parse().map_err(|_| QueryError::Undecodable)?;
                    options.since = Some(since);
                    has_time = true;
                }
                "stream" => {
                    options.source = match &*value {
                        "" | "All" => LogSource::All,
                        "Stdout" => LogSource::Stdout,
                        "Stderr" => LogSource::Stderr,
                        _ => return Err(QueryError::Invalid),
                    }
                }
                _ => {}
            }
        }
        // The last lines of one output would need the lines of the other one counted, too.
        if has_seconds && has_time || options.tail.is_some() && options.source != LogSource::All {
            return Err(QueryError::Invalid);
        }
        Ok(options)
    }
}

/// The streams in a query.
///
/// # Errors
/// There is none.
pub fn streams(query: &str) -> Result<StreamRequest, QueryError> {
    let mut request = StreamRequest::default();
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_set = value == "1" || value == "true";
        match &*key {
            "input" | "stdin" => request.stdin = is_set,
            "output" | "stdout" => request.stdout = is_set,
            "error" | "stderr" => request.stderr = is_set,
            "tty" => request.tty = is_set,
            _ => {}
        }
    }
    // A terminal has one output.
    request.stderr &= !request.tty;
    if !(request.stdin || request.stdout || request.stderr) {
        return Err(QueryError::NoStream);
    }
    Ok(request)
}

/// The program and arguments in a query.
pub fn command(query: &str) -> Vec<String> {
    values(query, "command").collect()
}

/// The command of `/run`: words with spaces between them.
pub fn words(query: &str) -> Vec<String> {
    let command = values(query, "cmd").next().unwrap_or_default();
    command.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The ports in a query. A SPDY client names them later, in its streams.
///
/// # Errors
/// One is none, or `is_needed` and there is none.
pub fn ports(query: &str, is_needed: bool) -> Result<Vec<u16>, QueryError> {
    let ports = values(query, "port").flat_map(|value| {
        value
            .split(',')
            .map(|port| {
                port.parse()
                    .ok()
                    .filter(|port| *port > 0)
                    .ok_or_else(|| QueryError::Port(port.to_owned()))
            })
            .collect::<Vec<_>>()
    });
    let ports = ports.collect::<Result<Vec<u16>, _>>()?;
    if ports.is_empty() && is_needed { Err(QueryError::NoPort) } else { Ok(ports) }
}

fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    form_urlencoded::parse(query.as_bytes())
        .filter(move |(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// As Kubernetes converts it: everything but `false` and `0` is true.
fn flag(value: &str) -> bool {
    !(value.eq_ignore_ascii_case("false") || value == "0")
}

fn number(value: &str, min: u64) -> Result<u64, QueryError> {
    let number: i64 = value.parse().map_err(|_| QueryError::Undecodable)?;
    u64::try_from(number).ok().filter(|number| *number >= min).ok_or(QueryError::Invalid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn the_options_of_a_log_are_those_of_a_kubelet() {
        let query = "follow=true&tailLines=7&timestamps=1&limitBytes=9&sinceSeconds=60&previous=0";
        let options = LogOptions::parse(query, NOW).expect("valid");
        assert!(options.follow && options.timestamps && !options.previous);
        assert_eq!((options.tail, options.bytes_max), (Some(7), Some(9)));
        assert_eq!(options.since, Some(NOW - SignedDuration::from_secs(60)));
        let options = LogOptions::parse("sinceTime=2026-01-01T00:00:00.5Z&tail=all", NOW);
        let options = options.expect("valid");
        assert_eq!(options.since, Some("2026-01-01T00:00:00.5Z".parse().expect("a time")));
        for (query, error) in [
            ("tailLines=x", QueryError::Undecodable),
            ("tailLines=-1", QueryError::Invalid),
            ("limitBytes=0", QueryError::Invalid),
            ("sinceSeconds=0", QueryError::Invalid),
            ("sinceTime=yesterday", QueryError::Undecodable),
            ("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", QueryError::Invalid),
            ("stream=both", QueryError::Invalid),
            ("stream=Stdout&tailLines=1", QueryError::Invalid),
        ] {
            assert_eq!(LogOptions::parse(query, NOW), Err(error), "{query}");
        }
    }

    #[test]
    fn a_terminal_has_one_output_and_a_stream_is_needed() {
        let all = streams("input=1&output=1&error=1&tty=1").expect("streams");
        assert!(all.stdin && all.stdout && all.tty && !all.stderr);
        assert_eq!(streams("tty=1&error=1"), Err(QueryError::NoStream));
        assert_eq!(command("command=sh&command=-c&command=a+b%26c"), ["sh", "-c", "a b&c"]);
        assert_eq!(words("cmd=ls%20-l"), ["ls", "-l"]);
    }

    #[test]
    fn a_port_is_a_number_above_zero() {
        assert_eq!(ports("port=80&port=81,82", true), Ok(vec![80, 81, 82]));
        assert_eq!(ports("", false), Ok(vec![]));
        assert_eq!(ports("", true), Err(QueryError::NoPort));
        for port in ["0", "65536", "-1", "http", ""] {
            assert!(ports(&format!("port={port}"), true).is_err(), "{port:?}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_answered(query in "([a-zA-Z]{0,12}=[%0-9a-zA-Z:.-]{0,12}&){0,6}|\\PC{0,40}") {
            let _ = (LogOptions::parse(&query, NOW), streams(&query), ports(&query, true));
            let _ = (command(&query), words(&query));
        }
    }
}
