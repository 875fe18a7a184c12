//! A value kept in its encoded form: for what is looked at rarely and held in great number.
//!
//! A definition as a tree of strings and lists takes five kilobytes; packed it takes less than
//! one, and decoding it again takes a few microseconds.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A `T`, encoded. Clones share the bytes.
pub struct Packed<T> {
    bytes: Arc<[u8]>,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Packs a value.
    pub fn new(value: &T) -> Self {
        let bytes = postcard::to_stdvec(value).expect("our records know their lengths");
        Packed { bytes: bytes.into(), of: PhantomData }
    }

    /// Unpacks the value.
    pub fn get(&self) -> T {
        postcard::from_bytes(&self.bytes).expect("packed by us, or tried when it was read")
    }

    /// Reads the same bytes as something that borrows from them: for who wants to look, not to have. `V`
    /// must have the binary form of `T`.
    pub fn view<'a, V: Deserialize<'a>>(&'a self) -> V {
        postcard::from_bytes(&self.bytes).expect("V has the form of T")
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// How many bytes it takes.
    pub fn packed_len(&self) -> usize {
        self.bytes.len()
    }
}

impl<T: Serialize + DeserializeOwned + Default> Default for Packed<T> {
    fn default() -> Self {
        Packed::new(&T::default())
    }
}

impl<T> Clone for Packed<T> {
    fn clone(&self) -> Self {
        Packed { bytes: Arc::clone(&self.bytes), of: PhantomData }
    }
}

/// Equal values pack to equal bytes: maps are ordered and there are no floats.
impl<T> PartialEq for Packed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> Eq for Packed<T> {}

impl<T: Serialize + DeserializeOwned + fmt::Debug> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl<T: Serialize + DeserializeOwned> Serialize for Packed<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            self.get().serialize(to)
        } else {
            to.serialize_bytes(&self.bytes)
        }
    }
}

impl<'de, T: Serialize + DeserializeOwned> Deserialize<'de> for Packed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Ok(Packed::new(&T::deserialize(from)?));
        }
        let bytes = Vec::<u8>::deserialize(from)?;
        match postcard::take_from_bytes::<T>(&bytes) {
            // Packed anew: the same value may have come in other bytes, and equal must be equal.
            Ok((value, [])) => Ok(Packed::new(&value)),
            Ok((_, rest)) => {
                Err(serde::de::Error::custom(format!("{} bytes are left over", rest.len())))
            }
            Err(error) => Err(serde::de::Error::custom(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sample = (String, Vec<u32>);

    #[test]
    fn what_was_packed_comes_out_again_in_every_form() {
        let value: Sample = ("text".to_owned(), vec![1, 2, 3]);
        let packed = Packed::new(&value);
        assert_eq!(packed.get(), value);
        let bytes = postcard::to_stdvec(&packed).unwrap();
        assert_eq!(postcard::from_bytes::<Packed<Sample>>(&bytes).unwrap(), packed);
        let json = serde_json::to_string(&packed).unwrap();
        assert_eq!(json, serde_json::to_string(&value).unwrap());
        assert_eq!(serde_json::from_str::<Packed<Sample>>(&json).unwrap(), packed);
    }

    #[test]
    fn the_same_value_in_other_bytes_is_the_same() {
        // A length and a number, each written longer than need be.
        let odd = postcard::to_stdvec(&[0x80_u8, 0x00, 0x81, 0x00, 0x85, 0x00][..]).unwrap();
        let read: Packed<Sample> = postcard::from_bytes(&odd).unwrap();
        assert_eq!(read, Packed::new(&(String::new(), vec![5])));
    }

    #[test]
    fn bytes_that_are_no_such_value_are_refused_when_read() {
        for bad in [&[0xff, 0xff, 0xff][..], &[], &[0, 0, 7]] {
            let bytes = postcard::to_stdvec(bad).unwrap();
            assert!(postcard::from_bytes::<Packed<Sample>>(&bytes).is_err(), "{bad:?}");
        }
    }
}
