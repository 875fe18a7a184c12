//! `one_of!`: an enum that is a JSON object with exactly one key, such as `{"run":{…}}`.
//!
//! Serde's derive reads the same form, but its errors speak of enums and variants to somebody who
//! wrote an object, and it stumbles over the `null`s that some clients write for the other keys.

/// Declares the enum with its numbers (binary) and keys (JSON), its writing and `read_one_of`. The
/// enum's `Deserialize` is left to the caller, who may have a guard to put before it.
macro_rules! one_of {
    (
        $(#[$meta:meta])*
        pub enum $name:ident ($what:literal) {
            $( $(#[$variant_meta:meta])* $variant:ident ( $ty:ty ) = $number:literal $key:literal ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant($ty), )*
        }

        impl $name {
            /// The keys of the JSON form, in the order of the variants.
            pub(crate) const KEYS: &'static [&'static str] = &[$($key),*];

            /// The key of the JSON form.
            pub const fn key(&self) -> &'static str {
                match self {
                    $( $name::$variant(_) => $key, )*
                }
            }

            fn read_one_of<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct OneOf;

                impl<'de> serde::de::Visitor<'de> for OneOf {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "{}: an object with one of {}", $what, $name::KEYS.join(", "))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        use serde::de::Error as _;
                        let mut found: Option<$name> = None;
                        while let Some(key) = map.next_key::<String>()? {
                            let value = match key.as_str() {
                                $( $key => map.next_value::<Option<$ty>>()?.map($name::$variant), )*
                                _ => return Err(A::Error::unknown_field(&key, $name::KEYS)),
                            };
                            if let Some(value) = value && found.replace(value).is_some() {
                                return Err(A::Error::custom(format_args!(
                                    "`{key}` is one too many: {} has exactly one key", $what,
                                )));
                            }
                        }
                        found.ok_or_else(|| A::Error::custom(format_args!(
                            "{} needs one of {}", $what, $name::KEYS.join(", "),
                        )))
                    }

                    fn visit_enum<A: serde::de::EnumAccess<'de>>(
                        self,
                        access: A,
                    ) -> Result<$name, A::Error> {
                        use serde::de::{Error as _, VariantAccess as _};
                        let (number, content) = access.variant::<u32>()?;
                        match number {
                            $( $number => content.newtype_variant().map($name::$variant), )*
                            _ => Err(A::Error::custom(format_args!("no {} number {number}", $what))),
                        }
                    }
                }

                if from.is_human_readable() {
                    from.deserialize_map(OneOf)
                } else {
                    from.deserialize_enum(stringify!($name), $name::KEYS, OneOf)
                }
            }
        }

        impl $crate::schema::Schema for $name {
            fn schema(components: &mut $crate::schema::Components) -> serde_json::Value {
                components.named(stringify!($name), |components| {
                    let mut schema = $crate::schema::object(
                        vec![$( ($key, <$ty as $crate::schema::Schema>::schema(components)) ),*],
                        &[],
                    );
                    schema["additionalProperties"] = false.into();
                    schema["minProperties"] = 1.into();
                    schema["maxProperties"] = 1.into();
                    schema
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let (name, key) = (stringify!($name), self.key());
                match self {
                    $( $name::$variant(content) => {
                        to.serialize_newtype_variant(name, $number, key, content)
                    } )*
                }
            }
        }
    };
}
pub(crate) use one_of;
