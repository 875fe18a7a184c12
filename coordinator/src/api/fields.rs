//! `fields=`: records with only those keys that the reader asked for.

use std::collections::BTreeSet;

use serde::ser::{Error as _, Impossible, SerializeStruct};
use serde::{Serialize, Serializer};
use serde_json::Value;
use volvox_protocol::schema::{Components, Schema};

use super::reply::ApiFailure;

/// The keys that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fields(BTreeSet<String>);

impl Fields {
    /// Reads `a,b,c`, keys of the records of type `T`.
    pub(crate) fn parse<T: Schema>(text: &str) -> Result<Self, ApiFailure> {
        let mut components = Components::default();
        let schema = T::schema(&mut components);
        let named = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        let components = components.into_value();
        let schema = named.map_or(&schema, |name| &components[name]);
        let known = |key: &str| schema["properties"].get(key).is_some();
        let wanted: BTreeSet<String> = text
            .split(',')
            .map(str::trim)
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
            .collect();
        if wanted.is_empty() {
            return Err(ApiFailure::field("fields", "names no field: give some, or leave it out"));
        }
        if let Some(unknown) = wanted.iter().find(|key| !known(key)) {
            let shown: String = unknown.chars().take(64).collect();
            let keys = schema["properties"].as_object().into_iter().flatten();
            let keys: Vec<&str> = keys.map(|(key, _): (&String, &Value)| key.as_str()).collect();
            let rule = format!("there is no field {shown:?}: {}", keys.join(", "));
            return Err(ApiFailure::field("fields", rule));
        }
        Ok(Fields(wanted))
    }
}

/// A record, with only those keys.
pub(crate) struct ProjectedRecord<'a, T>(pub(crate) &'a T, pub(crate) &'a Fields);

impl<T: Serialize> Serialize for ProjectedRecord<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Filter { to, fields: self.1 })
    }
}

/// Lets the wanted keys of one struct through. Records are structs: nothing else comes here.
struct Filter<'a, S> {
    to: S,
    fields: &'a Fields,
}

struct FilterStruct<'a, S> {
    open: S,
    fields: &'a Fields,
}

impl<S: SerializeStruct> SerializeStruct for FilterStruct<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), S::Error> {
        if self.fields.0.contains(key) {
            self.open.serialize_field(key, value)
        } else {
            self.open.skip_field(key)
        }
    }

    fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
        self.open.skip_field(key)
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.open.end()
    }
}

macro_rules! no_record {
    ($($method:ident ( $($ty:ty),* ) )*) => {
        $( fn $method(self $(, _: $ty)*) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("only records have fields"))
        } )*
    };
}

macro_rules! no_compound {
    ($($method:ident ( $($ty:ty),* ) -> $kind:ident)*) => {
        $( fn $method(self $(, _: $ty)*) -> Result<Self::$kind, S::Error> {
            Err(S::Error::custom("only records have fields"))
        } )*
    };
}

impl<'a, S: Serializer> Serializer for Filter<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = Impossible<S::Ok, S::Error>;
    type SerializeStruct = FilterStruct<'a, S::SerializeStruct>;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let open = self.to.serialize_struct(name, len)?;
        Ok(FilterStruct { open, fields: self.fields })
    }

    fn is_human_readable(&self) -> bool {
        self.to.is_human_readable()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("only records have fields"))
    }

    no_record! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32)
        serialize_i64(i64) serialize_u8(u8) serialize_u16(u16) serialize_u32(u32)
        serialize_u64(u64) serialize_f32(f32) serialize_f64(f64) serialize_char(char)
        serialize_str(&str) serialize_bytes(&[u8]) serialize_none() serialize_unit()
        serialize_unit_struct(&'static str) serialize_unit_variant(&'static str, u32, &'static str)
    }

    no_compound! {
        serialize_seq(Option<usize>) -> SerializeSeq
        serialize_tuple(usize) -> SerializeTuple
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant
        serialize_map(Option<usize>) -> SerializeMap
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::api::CellState;

    use super::*;

    #[test]
    fn only_the_wanted_keys_are_written() {
        let state: CellState =
            serde_json::from_str(r#"{"cell_id":"c","zone":"z","healthy":true}"#).unwrap();
        let fields = Fields::parse::<CellState>("zone, healthy,").unwrap();
        let text = serde_json::to_string(&ProjectedRecord(&state, &fields)).unwrap();
        assert_eq!(text, r#"{"zone":"z","healthy":true}"#);
    }

    #[test]
    fn a_misspelt_key_is_refused_with_the_right_ones() {
        let refused = Fields::parse::<CellState>("zone,helthy").unwrap_err();
        assert!(refused.error.message.starts_with("fields: there is no field \"helthy\": "));
        assert!(refused.error.message.contains("healthy"));
        assert!(Fields::parse::<CellState>(" , ").is_err());
    }
}
