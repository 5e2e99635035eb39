//! The list and the watch of one kind, as a state machine: which request comes next, and what the
//! answer means.
//!
//! ```text
//!              last page                    event, bookmark, end
//!  ┌──► Page ────────────► Watch(version) ──┐
//!  │     │ ▲                │   ▲           │
//!  │     └─┘ next page      │   └───────────┘
//!  │      any other failure: the same request again
//!  └──────── 410: the token or the version is too old ◄── Page, Watch
//! ```
//!
//! A list that begins again is a list: its first page says [`Step::Init`] again, and only
//! [`Step::InitDone`] says that it is whole.

use crate::raw_object::RawObject;
use crate::request::PageMetadata;

/// A request of the reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// A page of the list; the first one without a token.
    Page { token: Option<String> },
    /// The changes since a version.
    Watch { version: String },
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// A list begins.
    Init,
    /// An object of the list.
    InitApply(RawObject),
    /// The list is complete. It is the state at this version, if that is a number.
    InitDone { order: Option<u64> },
    /// An object came or changed.
    Apply(RawObject),
    /// An object was deleted.
    Delete(RawObject),
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// An object came or changed.
    Changed(RawObject),
    /// An object was deleted.
    Deleted(RawObject),
    /// Everything until this version was sent.
    Bookmark { version: String },
}

/// The API answered without the version at which a watch begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server sent an answer without a resource version")]
pub(crate) struct NoVersion;

/// See the module.
#[derive(Debug)]
pub(crate) struct Reflector {
    next: NextRequest,
    has_listed: bool,
}

impl Reflector {
    /// A kind that was not listed yet.
    pub(crate) fn new() -> Self {
        Self { next: NextRequest::Page { token: None }, has_listed: false }
    }

    /// The next request.
    pub(crate) fn next(&self) -> &NextRequest {
        &self.next
    }

    /// Whether the next request begins a list that is not the first one.
    pub(crate) fn begins_again(&self) -> bool {
        self.has_listed && self.next == NextRequest::Page { token: None }
    }

    /// Takes the page that was requested.
    ///
    /// # Errors
    /// When the page names neither a next one nor a version. The list begins again.
    pub(crate) fn take_page(
        &mut self,
        metadata: PageMetadata,
        objects: Vec<RawObject>,
    ) -> Result<Vec<Step>, NoVersion> {
        let PageMetadata { resource_version, continue_token } = metadata;
        if continue_token.is_empty() && resource_version.is_empty() {
            self.relist();
            return Err(NoVersion);
        }
        let mut steps = Vec::with_capacity(objects.len() + 2);
        if self.next == (NextRequest::Page { token: None }) {
            steps.push(Step::Init);
        }
        steps.extend(objects.into_iter().map(Step::InitApply));
        if continue_token.is_empty() {
            steps.push(Step::InitDone { order: resource_version.parse().ok() });
            self.has_listed = true;
            self.next = NextRequest::Watch { version: resource_version };
        } else {
            self.next = NextRequest::Page { token: Some(continue_token) };
        }
        Ok(steps)
    }

    /// Takes an event of the watch that was requested.
    ///
    /// # Errors
    /// When the event has no version, so that a watch could not be resumed. The kind is listed again.
    pub(crate) fn take_event(&mut self, event: Event) -> Result<Option<Step>, NoVersion> {
        let version = match &event {
            Event::Changed(object) | Event::Deleted(object) => object.resource_version().to_owned(),
            Event::Bookmark { version } => version.clone(),
        };
        if version.is_empty() {
            self.relist();
            return Err(NoVersion);
        }
        self.next = NextRequest::Watch { version };
        Ok(match event {
            Event::Changed(object) => Some(Step::Apply(object)),
            Event::Deleted(object) => Some(Step::Delete(object)),
            Event::Bookmark { .. } => None,
        })
    }

    /// Notes that the token or the version of the request is too old, or that the history of the API
    /// went back: the kind is listed again from its first page.
    pub(crate) fn relist(&mut self) {
        self.next = NextRequest::Page { token: None };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// An object as far as the reflector reads it.
    pub(crate) fn raw(name: &str, version: u64) -> RawObject {
        RawObject::new(json!({
            "metadata": {
                "name": name, "namespace": "d", "uid": format!("u-{name}"),
                "resourceVersion": version.to_string(),
            },
        }))
    }

    fn metadata(version: &str, token: &str) -> PageMetadata {
        PageMetadata { resource_version: version.into(), continue_token: token.into() }
    }

    fn done(order: u64) -> Step {
        Step::InitDone { order: Some(order) }
    }

    fn page(token: Option<&str>) -> NextRequest {
        NextRequest::Page { token: token.map(ToOwned::to_owned) }
    }

    fn watch(version: &str) -> NextRequest {
        NextRequest::Watch { version: version.into() }
    }

    #[test]
    fn a_list_of_pages_is_one_list_and_the_watch_begins_at_its_version() {
        let mut reflector = Reflector::new();
        assert_eq!(*reflector.next(), page(None));
        let steps = reflector.take_page(metadata("5", "t1"), vec![raw("a", 1)]);
        assert_eq!(steps, Ok(vec![Step::Init, Step::InitApply(raw("a", 1))]));
        assert_eq!(*reflector.next(), page(Some("t1")));
        let steps = reflector.take_page(metadata("5", ""), vec![raw("b", 2)]);
        assert_eq!(steps, Ok(vec![Step::InitApply(raw("b", 2)), done(5)]));
        assert_eq!(*reflector.next(), watch("5"));
    }

    #[test]
    fn a_page_that_expired_begins_the_list_again_without_an_end_of_the_first() {
        let mut reflector = Reflector::new();
        reflector.take_page(metadata("5", "t1"), vec![raw("a", 1)]).expect("a page");
        reflector.relist();
        assert!(!reflector.begins_again(), "no list was complete");
        let steps = reflector.take_page(metadata("9", ""), vec![raw("b", 2)]);
        assert_eq!(steps, Ok(vec![Step::Init, Step::InitApply(raw("b", 2)), done(9)]));
        reflector.relist();
        assert!(reflector.begins_again());
    }

    #[test]
    fn a_watch_is_resumed_behind_its_last_event_or_bookmark() {
        let mut reflector = Reflector::new();
        reflector.take_page(metadata("5", ""), Vec::new()).expect("a page");
        let step = reflector.take_event(Event::Changed(raw("a", 7)));
        assert_eq!(step, Ok(Some(Step::Apply(raw("a", 7)))));
        assert_eq!(*reflector.next(), watch("7"));
        assert_eq!(reflector.take_event(Event::Bookmark { version: "12".into() }), Ok(None));
        assert_eq!(*reflector.next(), watch("12"));
        let step = reflector.take_event(Event::Deleted(raw("a", 13)));
        assert_eq!(step, Ok(Some(Step::Delete(raw("a", 13)))));
        assert_eq!(*reflector.next(), watch("13"));
    }

    #[test]
    fn an_answer_without_a_version_begins_a_list() {
        let mut reflector = Reflector::new();
        assert_eq!(reflector.take_page(metadata("", ""), vec![raw("a", 1)]), Err(NoVersion));
        reflector.take_page(metadata("5", ""), Vec::new()).expect("a page");
        assert_eq!(reflector.take_event(Event::Bookmark { version: "".into() }), Err(NoVersion));
        assert!(reflector.begins_again());
    }
}
