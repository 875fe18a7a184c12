//! How bodies are read and written. The only place that knows: JSON today; protobuf, for Diego's own
//! clients, becomes a second variant here.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::api::{ApiError, LifecycleResponse};
use volvox_protocol::wire::decode_json;

use super::reply::Failure;

/// How a caller writes its bodies, and wants ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    /// JSON with the BBS's names.
    #[default]
    Json,
}

impl Encoding {
    /// What the headers of a request say. Without a word it is JSON.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let Some(given) = headers.get(CONTENT_TYPE) else { return Ok(Encoding::Json) };
        let given = given.to_str().unwrap_or("(not a text)");
        let media = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media.as_str() {
            // What curl says unless told otherwise.
            "" | "application/json" | "text/json" | "application/x-www-form-urlencoded" => {
                Ok(Encoding::Json)
            }
            _ => {
                let shown: String = given.chars().take(64).collect();
                let message = format!("content type {shown:?}: only application/json is spoken");
                let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                Err(Failure::new(status, "UnsupportedMediaType", message))
            }
        }
    }

    /// Reads a body. An empty one says nothing, as an empty object does.
    pub(crate) fn decode<T: DeserializeOwned>(self, body: &Bytes) -> Result<T, Failure> {
        match self {
            Encoding::Json if body.is_empty() => Ok(decode_json(b"{}")?),
            // A list of values in the order of the keys would be read too.
            Encoding::Json if body.trim_ascii_start().first() == Some(&b'[') => {
                Err(Failure::field("", "a JSON object is wanted, not a list"))
            }
            Encoding::Json => Ok(decode_json(body)?),
        }
    }

    /// Writes a body.
    pub(crate) fn encode(self, value: &impl Serialize) -> Result<Bytes, Failure> {
        match self {
            Encoding::Json => {
                let mut text = Vec::with_capacity(256);
                self.append(&mut text, value)?;
                Ok(text.into())
            }
        }
    }

    /// Writes a value behind what is there.
    pub(crate) fn append(self, text: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Failure> {
        match self {
            Encoding::Json => serde_json::to_writer(text, value).map_err(|error| {
                tracing::error!(%error, "an answer could not be written");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Failure::new(status, "UnknownError", "the answer could not be written")
            }),
        }
    }

    /// Writes the body of a call that failed: every answer has its error in the same place.
    pub(crate) fn encode_error(self, error: &ApiError) -> Bytes {
        let body = LifecycleResponse { error: Some(error.clone()) };
        self.encode(&body).unwrap_or_default()
    }

    /// What the headers of an answer say.
    pub(crate) const fn content_type(self) -> HeaderValue {
        match self {
            Encoding::Json => HeaderValue::from_static("application/json"),
        }
    }
}
