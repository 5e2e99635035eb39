//! The HTTP requests of hooks and probes, as a kubelet sends them.

use std::fmt::Write as _;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{HTTPGetAction, HTTPHeader};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::handler::{Target, connect};
use super::unverified_tls;

/// The most redirects that are followed, as Go's client does.
const REDIRECTS_MAX: usize = 10;

/// The bytes of a response that a warning shows, as a kubelet's (`pkg/probe/http`).
const BODY_BYTES_MAX: usize = 10 << 10;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    is_tls: bool,
    /// Empty: the target itself.
    host: String,
    port: IntOrString,
    /// Path and query.
    path: String,
}

/// A response that is no failure.
enum Response {
    /// Its status is 200 to 299.
    Success,
    /// Its status is 300 to 399.
    Redirect { location: Option<String>, body: String },
}

/// Sends the request, and follows redirects on the same host. It succeeds with status 200 to 399. A redirect to
/// another host is not followed: it succeeds with a warning.
///
/// # Errors
/// Why it did not succeed.
pub(super) async fn send(
    target: &Target,
    action: &HTTPGetAction,
) -> Result<Option<String>, String> {
    let scheme = action.scheme.as_deref().unwrap_or_default();
    let mut address = Address {
        is_tls: scheme.eq_ignore_ascii_case("https"),
        host: action.host.clone().unwrap_or_default(),
        port: action.port.clone(),
        path: path(action.path.as_deref().unwrap_or_default()),
    };
    let own_host = match address.host.as_str() {
        "" => target.address.to_string(),
        host => host.to_owned(),
    };
    for _ in 0..=REDIRECTS_MAX {
        let (location, body) = match get(target, action, &address).await? {
            Response::Success => return Ok(None),
            Response::Redirect { location, body } => (location, body),
        };
        match location.and_then(|to| address.follow(&to, &own_host)) {
            Some(next) => address = next,
            None => return Ok(Some(format!("Probe terminated redirects, Response body: {body}"))),
        }
    }
    Err(format!("stopped after {REDIRECTS_MAX} redirects"))
}

async fn get(
    target: &Target,
    action: &HTTPGetAction,
    address: &Address,
) -> Result<Response, String> {
    let (stream, to) = connect(target, Some(&address.host), &address.port).await?;
    let authority = to.to_string();
    let mut request = Request::get(&address.path)
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("the path of httpGet is invalid: {error}"))?;
    let headers = action.http_headers.as_deref().unwrap_or_default();
    *request.headers_mut() = self::headers(headers, &authority)?;
    if address.is_tls {
        let stream = unverified_tls::connect(stream, &to.host).await;
        let stream = stream.map_err(|error| format!("{authority} does not speak TLS: {error}"))?;
        exchange(stream, request, &authority).await
    } else {
        exchange(stream, request, &authority).await
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
    authority: &str,
) -> Result<Response, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("{authority} does not speak HTTP: {error}"))?;
    // The connection makes progress only while it is polled. It is closed after the response.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| format!("no response from {authority}: {error}"))?;
    let status = response.status();
    if status.is_success() {
        Ok(Response::Success)
    } else if status.is_redirection() {
        let location = response.headers().get(LOCATION);
        let location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Response::Redirect { location, body: beginning(response.into_body()).await })
    } else {
        Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
    }
}

/// The beginning of a body, as text.
async fn beginning(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < BODY_BYTES_MAX {
        let Some(Ok(frame)) = body.frame().await else { break };
        bytes.extend(frame.into_data().unwrap_or_default());
    }
    bytes.truncate(BODY_BYTES_MAX);
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

impl Address {
    /// The address to which a `Location` of a response leads; `None` if it is on another host than `own_host`, or no
    /// address of HTTP.
    fn follow(&self, location: &str, own_host: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        let scheme = if self.is_tls { "https:" } else { "http:" };
        let absolute = match location {
            _ if location.starts_with("//") => format!("{scheme}{location}"),
            _ if location.contains("://") => location.to_owned(),
            _ => return Some(Self { path: self.relative(location), ..self.clone() }),
        };
        let uri: Uri = absolute.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        if !host.eq_ignore_ascii_case(own_host) {
            return None;
        }
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = path(uri.path_and_query().map_or("", |path| path.as_str()));
        Some(Self { is_tls, host: host.to_owned(), port: IntOrString::Int(port.into()), path })
    }

    /// The path of a reference (RFC 3986, section 5.2, without its dot segments).
    fn relative(&self, reference: &str) -> String {
        let own = self.path.split('?').next().unwrap_or_default();
        let folder = own.rsplit_once('/').map_or("", |(folder, _)| folder);
        match reference {
            "" => self.path.clone(),
            _ if reference.starts_with('/') => path(reference),
            _ if reference.starts_with('?') => path(&format!("{own}{reference}")),
            _ => path(&format!("{folder}/{reference}")),
        }
    }
}

/// The path and query of a request. A path may lack its first slash, and a byte that no URL may have
/// is escaped.
fn path(given: &str) -> String {
    let given = given.split('#').next().unwrap_or_default();
    let mut path = String::with_capacity(given.len() + 1);
    if !given.starts_with('/') {
        path.push('/');
    }
    for byte in given.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

/// The headers of a request. A given header replaces the default one; an empty one removes it.
fn headers(given: &[HTTPHeader], authority: &str) -> Result<HeaderMap, String> {
    let invalid = |name: &str| format!("httpHeaders: header {name:?} is invalid");
    let mut headers = HeaderMap::new();
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("kube-probe/headwater-", env!("CARGO_PKG_VERSION"))),
    );
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    let host = HeaderValue::from_str(authority).map_err(|_| invalid("host"))?;
    headers.insert(HOST, host.clone());
    let mut own = HeaderMap::new();
    for HTTPHeader { name, value } in given {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid(name))?;
        let value = HeaderValue::from_str(value).map_err(|_| invalid(name))?;
        headers.remove(&header);
        if !value.is_empty() {
            own.append(header, value);
        }
    }
    headers.extend(own);
    headers.entry(HOST).or_insert(host);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_first_slash_and_no_byte_that_a_url_may_not_have() {
        for (given, sent) in [
            ("", "/"),
            ("healthz", "/healthz"),
            ("/a/b?c=d&e=%20", "/a/b?c=d&e=%20"),
            ("?ready=1", "/?ready=1"),
            ("a b\"ä#part", "/a%20b%22%C3%A4"),
        ] {
            assert_eq!(path(given), sent);
            Request::get(sent).body(()).expect("a request");
        }
    }

    #[test]
    fn a_redirect_is_followed_on_the_same_host_only() {
        let at = |is_tls, host: &str, port: i32, path: &str| Address {
            is_tls,
            host: host.to_owned(),
            port: IntOrString::Int(port),
            path: path.to_owned(),
        };
        let first = at(false, "", 8080, "/a/b?c");
        for (location, expected) in [
            ("/healthz", Some(at(false, "", 8080, "/healthz"))),
            ("d?e#f", Some(at(false, "", 8080, "/a/d?e"))),
            ("?e", Some(at(false, "", 8080, "/a/b?e"))),
            ("http://10.0.0.1/x", Some(at(false, "10.0.0.1", 80, "/x"))),
            ("https://10.0.0.1:8443", Some(at(true, "10.0.0.1", 8443, "/"))),
            ("//10.0.0.1:1/x", Some(at(false, "10.0.0.1", 1, "/x"))),
            ("http://0.0.0.0/", None),
            ("ftp://10.0.0.1/", None),
            ("http://", None),
        ] {
            assert_eq!(first.follow(location, "10.0.0.1"), expected, "{location}");
        }
    }

    #[test]
    fn given_headers_replace_those_of_a_probe() {
        let header =
            |name: &str, value: &str| HTTPHeader { name: name.into(), value: value.into() };
        let given = [header("Host", "shop"), header("X-A", "1"), header("x-a", "2")];
        let sent = headers(&given, "10.0.0.1:80").expect("valid");
        assert_eq!(sent["host"], "shop");
        assert_eq!(sent.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(sent["accept"], "*/*");
        let bare = [header("accept", ""), header("user-agent", ""), header("host", "")];
        let sent = headers(&bare, "10.0.0.1:80").expect("valid");
        assert_eq!(sent.keys().collect::<Vec<_>>(), ["host"], "HTTP needs the host");
        headers(&[header("a b", "")], "h").expect_err("no header has this name");
        headers(&[header("a", "b\nc")], "h").expect_err("no header has this value");
    }
}
