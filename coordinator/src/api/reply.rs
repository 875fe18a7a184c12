//! What the API says when it says no: one place for kinds, statuses and words.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use volvox_protocol::api::{ApiError, FieldError};
use volvox_protocol::limits::JSON_BYTES;
use volvox_protocol::request::Rejection;
use volvox_protocol::validate::Invalid;
use volvox_protocol::wire::DecodeError;

use super::encoding::Encoding;
use crate::bbs::command::CallError;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A body that is all there.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// A call that failed: what the caller is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiFailure {
    /// The status of the answer.
    pub(crate) status: StatusCode,
    /// Its body.
    pub(crate) error: ApiError,
    /// After how many seconds to try again.
    retry_after: Option<u32>,
    /// What the path would take instead.
    allow: Option<&'static str>,
}

impl ApiFailure {
    pub(crate) fn new(status: StatusCode, kind: &str, message: impl Into<String>) -> Self {
        let error =
            ApiError { kind: kind.to_owned(), message: message.into(), details: Vec::new() };
        ApiFailure { status, error, retry_after: None, allow: None }
    }

    /// The request breaks a rule.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        ApiFailure::new(StatusCode::BAD_REQUEST, "InvalidRequest", message)
    }

    /// One field breaks a rule.
    pub(crate) fn field(path: &str, rule: impl Into<String>) -> Self {
        ApiFailure::fields(vec![FieldError { path: path.to_owned(), rule: rule.into() }])
    }

    fn fields(details: Vec<FieldError>) -> Self {
        let told: Vec<String> =
            details.iter().map(|field| format!("{}: {}", field.path, field.rule)).collect();
        let mut failure = ApiFailure::invalid(told.join(", "));
        failure.error.details = details;
        failure
    }

    /// The record at this place in the body breaks rules.
    pub(crate) fn within(place: &str, invalid: Invalid) -> Self {
        let details = invalid.0.into_iter().map(|complaint| {
            let path = match (place, complaint.path.as_str()) {
                ("", path) => path.to_owned(),
                (place, "") => place.to_owned(),
                (place, path) => format!("{place}.{path}"),
            };
            FieldError { path, rule: complaint.rule }
        });
        ApiFailure::fields(details.collect())
    }

    pub(crate) fn not_found(what: &str) -> Self {
        let message = format!("{what} could not be found");
        ApiFailure::new(StatusCode::NOT_FOUND, "ResourceNotFound", message)
    }

    pub(crate) fn no_route(path: &str) -> Self {
        let shown: String = path.chars().take(128).collect();
        let message = format!("there is no {shown:?}: /openapi.json lists what there is");
        ApiFailure::new(StatusCode::NOT_FOUND, "RouteNotFound", message)
    }

    pub(crate) fn wrong_method(allowed: &'static str) -> Self {
        let message = format!("use {allowed} here");
        let mut failure =
            ApiFailure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        failure.allow = Some(allowed);
        failure
    }

    /// The content type is not one that the route takes.
    pub(crate) fn unspoken(given: &str, spoken: &str) -> Self {
        let shown: String = given.chars().take(64).collect();
        let message = format!("content type {shown:?}: {spoken} is wanted here");
        ApiFailure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn unauthorized(message: &str) -> Self {
        ApiFailure::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        ApiFailure::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub(crate) fn too_large(given: Option<u64>) -> Self {
        let message = match given {
            Some(given) => format!("the body has {given} bytes, the limit is {JSON_BYTES}"),
            None => format!("the body has more than {JSON_BYTES} bytes, which is the limit"),
        };
        ApiFailure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLarge", message)
    }

    pub(crate) fn too_slow(seconds: u64) -> Self {
        let message = format!("the body did not come within {seconds} s");
        ApiFailure::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    }

    pub(crate) fn too_many(message: impl Into<String>, retry_after: u32) -> Self {
        let mut failure =
            ApiFailure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        failure.retry_after = Some(retry_after);
        failure
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        let mut failure = ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, "Unavailable", message);
        failure.retry_after = Some(1);
        failure
    }

    /// What went wrong, as it is told.
    pub(crate) fn error(&self) -> &ApiError {
        &self.error
    }

    /// Whether the same call may succeed in a moment.
    fn is_passing(&self) -> bool {
        matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
    }

    /// The answer that tells it to Diego's clients: 200 with the error in field 1. They do not try again
    /// what was answered so; what is worth another try is a 503 with nothing in it, as it is of a BBS that
    /// is not up yet.
    fn respond_diego(&self, body: Bytes) -> Response<Body> {
        if self.is_passing() {
            let mut response = Response::new(full(Bytes::new()));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return response;
        }
        let mut response = Response::new(full(body));
        response.headers_mut().insert(CONTENT_TYPE, Encoding::Protobuf.content_type());
        response
    }

    /// The answer that tells it.
    pub(crate) fn respond(&self, encoding: Encoding) -> Response<Body> {
        self.respond_with(encoding, encoding.encode_error(&self.error))
    }

    /// The same in the form of an answer that has more to say than its error.
    pub(crate) fn respond_with(&self, encoding: Encoding, body: Bytes) -> Response<Body> {
        if encoding == Encoding::Protobuf {
            return self.respond_diego(body);
        }
        let mut response = Response::new(full(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, encoding.content_type());
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allowed) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Rejection> for ApiFailure {
    fn from(rejection: Rejection) -> Self {
        let status = match &rejection {
            Rejection::NotFound(_) => StatusCode::NOT_FOUND,
            Rejection::Invalid(_) => StatusCode::BAD_REQUEST,
            Rejection::Exists(_)
            | Rejection::CannotClaim(_)
            | Rejection::CannotStart(_)
            | Rejection::CannotCrash(_)
            | Rejection::CannotFail(_)
            | Rejection::CannotRemove(_)
            | Rejection::TaskTransition { .. }
            | Rejection::UpdateInProgress(_)
            | Rejection::NoUpdateInProgress(_)
            | Rejection::RunningOnDifferentCell { .. } => StatusCode::CONFLICT,
        };
        ApiFailure::new(status, rejection.kind(), rejection.to_string())
    }
}

impl From<CallError> for ApiFailure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Rejected(rejection) => rejection.into(),
            // Each says itself what became of the change.
            CallError::Store(error) => ApiFailure::busy(error.to_string()),
            CallError::Busy | CallError::Closed => ApiFailure::busy(error.to_string()),
        }
    }
}

impl From<DecodeError> for ApiFailure {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Json { path, message } => {
                let path = if path == "." { String::new() } else { path };
                let mut failure = ApiFailure::field(&path, message);
                if path.is_empty() {
                    failure.error.message = failure.error.details[0].rule.clone();
                }
                failure
            }
            DecodeError::TooLarge { given, .. } => ApiFailure::too_large(u64::try_from(given).ok()),
            DecodeError::Empty
            | DecodeError::Version { .. }
            | DecodeError::Frame(_)
            | DecodeError::Trailing(_) => ApiFailure::invalid(error.to_string()),
        }
    }
}
