//! `record!`: one declaration for both faces of a record, and for the description of its JSON face.
//!
//! In JSON a record wears the BBS's names and leaves out what is empty; in postcard every field
//! stands in its place, because postcard has no names to tell what was left out. Serde's own
//! `skip_serializing_if` cannot tell the two apart, hence this macro. Reading is serde's derive,
//! but for [`read_flat`]: serde's own `flatten` forgets where in the input it is, and an error
//! without a path helps nobody.

mod one_of;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

pub(crate) use one_of::one_of;

/// Whether a value is what a missing key would be read as.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares a struct with its JSON names. After each name stands how the key behaves:
/// `required` (must be given, always written), `always` (may be left out, always written) or
/// `omit` (may be left out, written only when not the default). `as "Name"` behind the struct's own
/// name is the one that the OpenAPI document has for it.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(as $described:literal)? {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty = $key:literal $mode:ident ),* $(,)?
        }
    ) => {
        $crate::record::record! { @derive
            $(#[$meta])*
            pub struct $name { $( $(#[$field_meta])* $field : $ty = $key $mode ),* }
        }

        impl $name {
            /// Writes the fields into an open struct, so that a parent may hold them flat.
            pub(crate) fn serialize_fields<S: serde::ser::SerializeStruct>(
                &self,
                into: &mut S,
                human: bool,
            ) -> Result<(), S::Error> {
                $( $crate::record::record!(@write into, human, $key, self.$field, $mode); )*
                Ok(())
            }

            /// How many fields [`Self::serialize_fields`] may write.
            pub(crate) const FIELDS: usize = [$($key),*].len();
        }

        impl $crate::record::ReadFields for $name {
            fn read_field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                from: &mut A,
            ) -> Result<bool, A::Error> {
                match key {
                    $( $key => self.$field = $crate::record::record!(@read from, $mode), )*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let human = to.is_human_readable();
                let mut open = to.serialize_struct(stringify!($name), Self::FIELDS)?;
                self.serialize_fields(&mut open, human)?;
                open.end()
            }
        }

        impl $crate::schema::Schema for $name {
            fn schema(components: &mut $crate::schema::Components) -> serde_json::Value {
                components.named($crate::record::record!(@described $name $($described)?), |components| {
                    let properties = vec![
                        $( ($key, $crate::record::record!(@describe components, $ty, $mode)) ),*
                    ];
                    let required: Vec<&str> = [
                        $( $crate::record::record!(@required $key, $mode) ),*
                    ].into_iter().flatten().collect();
                    $crate::schema::object(properties, &required)
                })
            }
        }
    };

    (@derive
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty = $key:literal $mode:ident ),*
        }
    ) => {
        $crate::record::record! { @fields
            [$(#[$meta])* pub struct $name] [] $( [$(#[$field_meta])*] $field : $ty = $key $mode, )*
        }
    };

    (@fields [$(#[$meta:meta])* pub struct $name:ident] [$($done:tt)*]) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
        pub struct $name { $($done)* }
    };
    (@fields $head:tt [$($done:tt)*]
        [$(#[$field_meta:meta])*] $field:ident : $ty:ty = $key:literal required, $($rest:tt)*
    ) => {
        $crate::record::record! { @fields $head
            [$($done)* $(#[$field_meta])* #[serde(rename = $key)] pub $field: $ty,] $($rest)*
        }
    };
    (@fields $head:tt [$($done:tt)*]
        [$(#[$field_meta:meta])*] $field:ident : $ty:ty = $key:literal $mode:ident, $($rest:tt)*
    ) => {
        $crate::record::record! { @fields $head
            [$($done)* $(#[$field_meta])* #[serde(rename = $key, default, deserialize_with = "crate::record::null_is_default")] pub $field: $ty,] $($rest)*
        }
    };

    (@described $name:ident) => { stringify!($name) };
    (@described $name:ident $described:literal) => { $described };

    (@describe $components:ident, $ty:ty, required) => {
        <$ty as $crate::schema::Schema>::schema($components)
    };
    (@describe $components:ident, $ty:ty, $mode:ident) => {
        $crate::schema::or_null(<$ty as $crate::schema::Schema>::schema($components))
    };
    (@required $key:literal, required) => { Some($key) };
    (@required $key:literal, $mode:ident) => { None::<&str> };

    (@read $from:ident, required) => { $from.next_value()? };
    (@read $from:ident, $mode:ident) => {
        $from.next_value::<$crate::record::NullIsDefault<_>>()?.0
    };

    (@write $into:ident, $human:ident, $key:literal, $value:expr, omit) => {
        if $human && $crate::record::is_default(&$value) {
            $into.skip_field($key)?;
        } else {
            $into.serialize_field($key, &$value)?;
        }
    };
    (@write $into:ident, $human:ident, $key:literal, $value:expr, $mode:ident) => {
        let _ = $human;
        $into.serialize_field($key, &$value)?;
    };
}
pub(crate) use record;

/// Go clients write `null` for an empty list or map: in JSON that reads as the default.
pub(crate) fn null_is_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    if from.is_human_readable() {
        Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
    } else {
        T::deserialize(from)
    }
}

/// [`null_is_default`] as a type, for readers that have no attribute to put it in.
pub(crate) struct NullIsDefault<T>(pub(crate) T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for NullIsDefault<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        null_is_default(from).map(NullIsDefault)
    }
}

/// A record that can be read one key at a time.
pub(crate) trait ReadFields {
    /// Reads the value of `key` into its field; false, and nothing read, when it is no key of ours.
    fn read_field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        from: &mut A,
    ) -> Result<bool, A::Error>;
}

/// Reads a JSON object that holds the keys of two records side by side. Keys of neither are
/// ignored; a key given twice is refused, as serde's derive does.
pub(crate) fn read_flat<'de, D, A, B>(from: D, what: &'static str) -> Result<(A, B), D::Error>
where
    D: Deserializer<'de>,
    A: ReadFields + Default,
    B: ReadFields + Default,
{
    struct Flat<A, B>(&'static str, PhantomData<(A, B)>);

    impl<'de, A: ReadFields + Default, B: ReadFields + Default> Visitor<'de> for Flat<A, B> {
        type Value = (A, B);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(A, B), M::Error> {
            let (mut first, mut second) = (A::default(), B::default());
            let mut seen: Vec<String> = Vec::new();
            while let Some(key) = map.next_key::<String>()? {
                if seen.contains(&key) {
                    return Err(M::Error::custom(format_args!("duplicate field `{key}`")));
                }
                if first.read_field(&key, &mut map)? || second.read_field(&key, &mut map)? {
                    seen.push(key);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok((first, second))
        }
    }

    from.deserialize_map(Flat(what, PhantomData))
}

#[cfg(test)]
mod tests {
    #![allow(unreachable_pub, reason = "record! declares what the world may see")]

    record! {
        /// A record for the tests below.
        pub struct Sample {
            /// Must be given.
            name: String = "name" required,
            /// Always shown.
            count: u32 = "n" always,
            /// Shown when not empty.
            list: Vec<u8> = "list" omit,
        }
    }

    #[test]
    fn json_leaves_out_what_is_empty_and_postcard_leaves_out_nothing() {
        let sample = Sample { name: "a".into(), count: 0, list: vec![] };
        assert_eq!(serde_json::to_string(&sample).unwrap(), r#"{"name":"a","n":0}"#);
        let bytes = postcard::to_stdvec(&sample).unwrap();
        assert_eq!(postcard::from_bytes::<Sample>(&bytes).unwrap(), sample);
    }

    #[test]
    fn missing_and_null_read_as_empty_but_required_is_required() {
        let read = |text| serde_json::from_str::<Sample>(text);
        assert_eq!(read(r#"{"name":"a","list":null}"#).unwrap().list, Vec::<u8>::new());
        assert_eq!(read(r#"{"name":"a"}"#).unwrap().count, 0);
        assert!(read(r#"{"n":1}"#).unwrap_err().to_string().contains("missing field `name`"));
    }
}
