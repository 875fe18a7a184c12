//! How bodies are read and written. The only place that knows: JSON with the BBS's names, and for Diego's
//! own clients the BBS's protobuf messages.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::api::{ApiError, LifecycleResponse};
use volvox_protocol::diego::{DiegoDecodeError, DiegoReply, DiegoRequest, ListEntry};
use volvox_protocol::wire::decode_json;

use super::reply::ApiFailure;

/// How a caller writes its bodies, and wants ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    /// JSON with the BBS's names.
    #[default]
    Json,
    /// The BBS's messages. Failures are answered with 200, and the error in field 1.
    Protobuf,
}

impl Encoding {
    /// What the headers of a request say. `unsaid` is what it means to say nothing.
    pub(crate) fn of(headers: &HeaderMap, unsaid: Encoding) -> Result<Self, ApiFailure> {
        let Some(given) = headers.get(CONTENT_TYPE) else { return Ok(unsaid) };
        let given = given.to_str().unwrap_or("(not a text)");
        let media = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media.as_str() {
            "" => Ok(unsaid),
            "application/x-protobuf" | "application/protobuf" => Ok(Encoding::Protobuf),
            // The last is what curl says unless told otherwise.
            "application/json" | "text/json" | "application/x-www-form-urlencoded" => {
                Ok(Encoding::Json)
            }
            _ => Err(ApiFailure::unspoken(given, "application/json or application/x-protobuf")),
        }
    }

    /// Reads a body. An empty one says nothing, as an empty object does.
    pub(crate) fn decode<T: DeserializeOwned + DiegoRequest>(
        self,
        body: &Bytes,
    ) -> Result<T, ApiFailure> {
        match self {
            Encoding::Json if body.is_empty() => Ok(decode_json(b"{}")?),
            // A list of values in the order of the keys would be read too.
            Encoding::Json if body.trim_ascii_start().first() == Some(&b'[') => {
                Err(ApiFailure::field("", "a JSON object is wanted, not a list"))
            }
            Encoding::Json => Ok(decode_json(body)?),
            Encoding::Protobuf => T::from_diego(body).map_err(ApiFailure::from),
        }
    }

    /// Writes a body.
    pub(crate) fn encode(self, value: impl Serialize + DiegoReply) -> Result<Bytes, ApiFailure> {
        match self {
            Encoding::Json => json(&value),
            Encoding::Protobuf => Ok(value.into_diego().into()),
        }
    }

    /// Writes an entry of a list behind what is there.
    pub(crate) fn append(
        self,
        text: &mut Vec<u8>,
        value: impl Serialize + ListEntry,
    ) -> Result<(), ApiFailure> {
        match self {
            Encoding::Json => append_json(text, &value),
            Encoding::Protobuf => {
                value.put_diego(text);
                Ok(())
            }
        }
    }

    /// Writes the body of a call that failed: every answer has its error in the same place.
    pub(crate) fn encode_error(self, error: &ApiError) -> Bytes {
        self.encode(LifecycleResponse { error: Some(error.clone()) }).unwrap_or_default()
    }

    /// What the headers of an answer say.
    pub(crate) const fn content_type(self) -> HeaderValue {
        match self {
            Encoding::Json => HeaderValue::from_static("application/json"),
            Encoding::Protobuf => HeaderValue::from_static("application/x-protobuf"),
        }
    }
}

/// A value as JSON, for what has no other form.
pub(crate) fn json(value: &impl Serialize) -> Result<Bytes, ApiFailure> {
    let mut text = Vec::with_capacity(256);
    append_json(&mut text, value)?;
    Ok(text.into())
}

/// Writes JSON behind what is there.
pub(crate) fn append_json(text: &mut Vec<u8>, value: &impl Serialize) -> Result<(), ApiFailure> {
    serde_json::to_writer(text, value).map_err(|error| {
        tracing::error!(%error, "an answer could not be written");
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        ApiFailure::new(status, "UnknownError", "the answer could not be written")
    })
}

impl From<DiegoDecodeError> for ApiFailure {
    fn from(unread: DiegoDecodeError) -> Self {
        match unread {
            DiegoDecodeError::TooLarge(error) => error.into(),
            // The BBS says no more than this of a body that it cannot read, and clients may look for it.
            DiegoDecodeError::Undecodable | DiegoDecodeError::Misshapen(_) => {
                tracing::debug!(why = %unread, "a body could not be read");
                ApiFailure::invalid("the request received is invalid")
            }
            DiegoDecodeError::Invalid(invalid) => ApiFailure::within("", invalid),
        }
    }
}
