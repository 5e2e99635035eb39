//! Bodies and refusals.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

/// The body of every response.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is whole.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A line for a person.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    of_type(status, "text/plain; charset=utf-8", whole(text.into()))
}

/// JSON that is already encoded.
pub(crate) fn json(bytes: Vec<u8>) -> Response<Body> {
    of_type(StatusCode::OK, "application/json", whole(bytes))
}

/// A body of a media type.
pub(crate) fn of_type(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // A log is no page, whatever it has.
    let no_sniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, no_sniff);
    response
}
