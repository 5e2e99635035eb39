//! Requests to the server of a node, which has a kubelet's paths and parameters.

use form_urlencoded::Serializer;
use headwater_kubelet::query::{self, LogOptions, LogSource};
use headwater_kubelet::route::Route;
use http::Method;
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The longest path that is written again, in bytes: with every byte encoded it is still shorter than the longest one that is
/// read.
const REWRITTEN_BYTES_MAX: usize = 600;

/// A path.
pub fn path(bytes: &[u8]) {
    let Ok(path) = std::str::from_utf8(bytes) else { return };
    for method in [Method::GET, Method::POST] {
        let Ok(route) = Route::parse(&method, path) else { continue };
        assert!(!route.resource().subresource.is_empty(), "a route that no right is for");
        let Some(named) = route.pod() else { continue };
        let container = (!named.container.is_empty()).then_some(&named.container);
        let names = [Some(&named.namespace), Some(&named.pod), named.uid.as_ref(), container];
        let mut written = format!("/{}", route.name());
        for name in names.into_iter().flatten() {
            assert!(!name.is_empty(), "an empty name");
            written.push('/');
            written.extend(utf8_percent_encode(name, NON_ALPHANUMERIC));
        }
        if path.len() <= REWRITTEN_BYTES_MAX {
            assert_eq!(Route::parse(&method, &written), Ok(route), "{written}");
        }
    }
}

/// The parameters of a log, of a stream, of a command and of ports.
pub fn parameters(bytes: &[u8]) {
    let Ok(query) = std::str::from_utf8(bytes) else { return };
    let now = Timestamp::UNIX_EPOCH;
    if let Ok(options) = LogOptions::parse(query, now) {
        assert_eq!(LogOptions::parse(&log_query(&options), now), Ok(options));
    }
    if let Ok(streams) = query::streams(query) {
        assert!(streams.stdin || streams.stdout || streams.stderr, "no stream");
        assert!(!(streams.tty && streams.stderr), "a terminal with two outputs");
    }
    if let Ok(ports) = query::ports(query, true) {
        assert!(!ports.is_empty() && !ports.contains(&0), "{ports:?}");
    }
    assert!(query::words(query).iter().all(|word| !word.is_empty() && !word.contains(' ')));
    let command = query::command(query);
    let mut written = Serializer::new(String::new());
    for word in &command {
        written.append_pair("command", word);
    }
    assert_eq!(query::command(&written.finish()), command);
}

/// The query that asks for these options.
fn log_query(options: &LogOptions) -> String {
    let mut query = Serializer::new(String::new());
    let flags = [
        ("follow", options.follow),
        ("previous", options.previous),
        ("timestamps", options.timestamps),
    ];
    for (name, is_set) in flags {
        query.append_pair(name, if is_set { "true" } else { "false" });
    }
    if let Some(tail) = options.tail {
        query.append_pair("tailLines", &tail.to_string());
    }
    if let Some(bytes_max) = options.bytes_max {
        query.append_pair("limitBytes", &bytes_max.to_string());
    }
    if let Some(since) = options.since {
        query.append_pair("sinceTime", &since.to_string());
    }
    let source = match options.source {
        LogSource::All => "All",
        LogSource::Stdout => "Stdout",
        LogSource::Stderr => "Stderr",
    };
    query.append_pair("stream", source);
    query.finish()
}
