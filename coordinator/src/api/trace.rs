//! The caller's own number for a call (`X-Vcap-Request-Id`), from its head to the events that it causes.
//!
//! It belongs to the task that answers the call: what a handler has the board do carries it, without
//! every handler passing it on.

use std::future::Future;
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName};

/// Where Diego's clients say it.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-vcap-request-id");
/// Letters of one: more than any component gives, and little beside the event that carries it.
const LONGEST: usize = 300;

tokio::task_local! {
    static TRACE: Option<Arc<str>>;
}

/// The caller's own number for the call, if it is one that can be written down.
pub(crate) fn of(headers: &HeaderMap) -> Option<Arc<str>> {
    let given = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = given.len() <= LONGEST && given.bytes().all(|byte| byte.is_ascii_graphic());
    (fits && !given.is_empty()).then(|| given.into())
}

/// Does this work for a call with that number.
pub(crate) async fn scope<R>(trace: Option<Arc<str>>, work: impl Future<Output = R>) -> R {
    TRACE.scope(trace, work).await
}

/// The number of the call that is being answered, if it has one.
pub(crate) fn current() -> Option<Arc<str>> {
    TRACE.try_with(Clone::clone).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_written_down_is_kept() {
        let of = |text: &str| {
            let headers = [(REQUEST_ID, text.parse().unwrap())].into_iter().collect();
            of(&headers).map(|trace| trace.to_string())
        };
        assert_eq!(of("0f1e-2d3c"), Some("0f1e-2d3c".to_owned()));
        assert_eq!((of(""), of("two words"), of(&"x".repeat(301))), (None, None, None));
    }

    #[tokio::test]
    async fn a_number_is_known_inside_of_its_call_only() {
        let inside = scope(Some("a".into()), async { current() }).await;
        assert_eq!((inside.as_deref(), current()), (Some("a"), None));
    }
}
