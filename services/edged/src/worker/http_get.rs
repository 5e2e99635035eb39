//! The HTTP requests of hooks and probes, as a kubelet sends them.

use std::fmt::Write as _;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{HTTPGetAction, HTTPHeader};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::handler::{Target, connect};
use super::unverified_tls;

/// Sends the request. It succeeds with status 200 to 399.
///
/// # Errors
/// Why it did not succeed.
pub(super) async fn send(target: &Target, action: &HTTPGetAction) -> Result<(), String> {
    let (stream, to) = connect(target, action.host.as_deref(), &action.port).await?;
    let authority = to.to_string();
    let mut request = Request::get(path(action.path.as_deref().unwrap_or_default()))
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("the path of httpGet is invalid: {error}"))?;
    let headers = action.http_headers.as_deref().unwrap_or_default();
    *request.headers_mut() = self::headers(headers, &authority)?;
    if action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
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
) -> Result<(), String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("{authority} does not speak HTTP: {error}"))?;
    // The connection makes progress only while it is polled. It is closed after the response's head.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| format!("no response from {authority}: {error}"))?;
    let status = response.status();
    if status.is_success() || status.is_redirection() {
        Ok(())
    } else {
        Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
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
