//! What stands behind the `?` of a request.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use volvox_protocol::schema::{Components, Schema};
use volvox_protocol::wire::decode_json;

use super::reply::ApiFailure;

/// Names with values, in order. Those of the API itself are taken out by who knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

/// Names that belong to the API and not to a request.
const OURS: [&str; 4] = ["fields", "snapshot", "last_event_id", "verbose"];

impl Query {
    /// Reads `a=b&c=d`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, ApiFailure> {
        let mut pairs = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if pairs.iter().any(|(known, _)| *known == name) {
                let shown: String = name.chars().take(64).collect();
                return Err(ApiFailure::field(&shown, "is given twice"));
            }
            pairs.push((name, value));
        }
        Ok(Query(pairs))
    }

    /// The value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on: `?name`, `?name=true` or `?name=1`.
    pub(crate) fn is_on(&self, name: &str) -> Result<bool, ApiFailure> {
        match self.get(name) {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(_) => Err(ApiFailure::field(name, "is true or false")),
        }
    }

    /// Refuses names that nobody looks at: the request is in the body.
    pub(crate) fn only_ours(&self) -> Result<(), ApiFailure> {
        match self.0.iter().find(|(name, _)| !OURS.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                let shown: String = name.chars().take(64).collect();
                Err(ApiFailure::field(
                    &shown,
                    "is no parameter here: with POST it goes into the body",
                ))
            }
        }
    }

    /// The request that the names spell. Lists have commas between their entries.
    pub(crate) fn request<Q: DeserializeOwned + Schema>(&self) -> Result<Q, ApiFailure> {
        let mut components = Components::default();
        let schema = Q::schema(&mut components);
        let named = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        let components = components.into_value();
        let schema = named.map_or(&schema, |name| &components[name]);
        let mut object = Map::new();
        for (name, value) in self.0.iter().filter(|(name, _)| !OURS.contains(&name.as_str())) {
            let Some(property) = schema["properties"].get(name) else {
                let known: Vec<&str> = schema["properties"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(key, _)| key.as_str())
                    .collect();
                let shown: String = name.chars().take(64).collect();
                let rule = format!("is no parameter here: {}", known.join(", "));
                return Err(ApiFailure::field(&shown, rule));
            };
            object.insert(name.clone(), spelled(property, value));
        }
        Ok(decode_json(Value::Object(object).to_string().as_bytes())?)
    }
}

/// A text as the kind of value that is wanted; what does not fit stays a text, and is refused with
/// its path by who reads it.
fn spelled(property: &Value, text: &str) -> Value {
    let is = |kind: &str| match &property["type"] {
        Value::String(one) => one == kind,
        Value::Array(some) => some.iter().any(|one| one == kind),
        _ => false,
    };
    let fitting = if is("integer") {
        text.parse::<u64>().ok().map(Value::from)
    } else if is("boolean") {
        text.parse::<bool>().ok().map(Value::from)
    } else if is("array") {
        Some(text.split(',').filter(|one| !one.is_empty()).map(Value::from).collect())
    } else {
        None
    };
    fitting.unwrap_or_else(|| Value::from(text))
}

/// Undoes `%41` and `+`.
fn decode(text: &str) -> Result<String, ApiFailure> {
    let broken = || ApiFailure::invalid("the query is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, after) = rest.split_at_checked(2).ok_or_else(broken)?;
                let digits = std::str::from_utf8(digits).map_err(|_| broken())?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(broken());
                }
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| broken())?);
                rest = after;
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).map_err(|_| broken())
}

#[cfg(test)]
mod tests {
    use volvox_protocol::api::{ActualLrpsRequest, DesiredLrpsRequest};

    use super::*;

    #[test]
    fn a_query_spells_a_request() {
        let query = Query::parse(Some("domain=a%20b+c&index=3&fields=x")).unwrap();
        let request: ActualLrpsRequest = query.request().unwrap();
        assert_eq!((request.domain.as_str(), request.index), ("a b c", Some(3)));
        let query = Query::parse(Some("process_guids=a,b")).unwrap();
        let request: DesiredLrpsRequest = query.request().unwrap();
        assert_eq!(request.process_guids, ["a", "b"]);
        assert_eq!(Query::parse(None).unwrap().request::<DesiredLrpsRequest>().unwrap().domain, "");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |text: &str| {
            let query = match Query::parse(Some(text)) {
                Ok(query) => query,
                Err(failure) => return failure.error.message,
            };
            query.request::<ActualLrpsRequest>().unwrap_err().error.message
        };
        assert!(message("domian=a").starts_with("domian: is no parameter here: cell_id, domain"));
        assert!(message("index=-1").starts_with("index: invalid type"));
        assert_eq!(message("index=1&index=2"), "index: is given twice");
        for broken in ["a=%", "a=%4", "a=%zz", "a=%+1", "a=%ff"] {
            assert_eq!(message(broken), "the query is not percent-encoded UTF-8", "{broken}");
        }
    }

    #[test]
    fn switches_are_on_or_off() {
        let on = |text| Query::parse(Some(text)).unwrap().is_on("verbose");
        assert!(on("verbose").unwrap() && on("verbose=true").unwrap() && on("verbose=1").unwrap());
        assert!(!on("").unwrap() && !on("verbose=0").unwrap());
        assert!(on("verbose=maybe").is_err());
    }
}
