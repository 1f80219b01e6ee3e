//! Converts values between `rusqlite`'s types and PostgreSQL's binary format.

use std::{borrow::Cow, error::Error as StdError};

use bytes::{BufMut as _, BytesMut};
use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};
use tokio_postgres::types::{FromSql, IsNull, Type, to_sql_checked};

use super::{Error, Result};

/// The value of a placeholder.
#[derive(Debug)]
pub(super) struct Parameter(Value);

/// A column as it came over the wire.
enum RawColumn<'r> {
    Null,
    Value(Type, &'r [u8]),
}

// === impl Parameter ===

impl Parameter {
    pub(super) fn of(value: &dyn ToSql) -> Result<Self> {
        Ok(Self(match value.to_sql()? {
            ToSqlOutput::Owned(value) => value,
            ToSqlOutput::Borrowed(value) => {
                Value::try_from(value).map_err(|error| Error::ToSqlConversionFailure(Box::new(error)))?
            }
            // Neither of the features that have more is on.
            other => {
                return Err(Error::ToSqlConversionFailure(format!("{other:?} can't be a placeholder's value").into()));
            }
        }))
    }
}

impl tokio_postgres::types::ToSql for Parameter {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (&self.0, ty) {
            (Value::Null, _) => return Ok(IsNull::Yes),
            (Value::Integer(number), &Type::INT8) => out.put_i64(*number),
            (Value::Integer(number), &Type::INT4) => out.put_i32(i32::try_from(*number)?),
            (Value::Integer(number), &Type::BOOL) => out.put_u8(u8::from(*number != 0)),
            (Value::Text(text), &Type::TEXT | &Type::VARCHAR | &Type::UNKNOWN) => {
                out.put_slice(escaped(text).as_bytes());
            }
            (Value::Blob(bytes), &Type::BYTEA) => out.put_slice(bytes),
            (value, ty) => return Err(format!("{:?} can't be a {ty}", value.data_type()).into()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

// === impl RawColumn ===

impl<'r> FromSql<'r> for RawColumn<'r> {
    fn from_sql(ty: &Type, raw: &'r [u8]) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self::Value(ty.clone(), raw))
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// PostgreSQL has no text with a NUL in it. What stands for it keeps the order of texts.
fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(['\0', '\x01']) {
        text.replace('\x01', "\x01\x02").replace('\0', "\x01\x01").into()
    } else {
        text.into()
    }
}

/// Undoes [`escaped`].
pub(super) fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&1) {
        return text.into();
    }
    let mut whole = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        whole.push(if *byte == 1 { bytes.next().map_or(1, |second| second - 1) } else { *byte });
    }
    whole.into()
}

/// The value of a column, as SQLite would show it: a truth value is a number.
pub(super) fn column(row: &tokio_postgres::Row, column: usize) -> Result<ValueRef<'_>> {
    let failure = |what: String| Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, what.into());
    let raw: RawColumn<'_> = row.try_get(column).map_err(|error| failure(error.to_string()))?;
    let RawColumn::Value(ty, raw) = raw else { return Ok(ValueRef::Null) };
    let number = |raw: &[u8]| raw.iter().fold(0_i64, |number, byte| number << 8 | i64::from(*byte));
    Ok(match (ty, raw) {
        (Type::INT8, raw) => ValueRef::Integer(number(raw)),
        (Type::INT4, raw) => {
            let raw = raw.try_into().map_err(|_| failure("not four bytes".to_owned()))?;
            ValueRef::Integer(i64::from(i32::from_be_bytes(raw)))
        }
        (Type::BOOL, raw) => ValueRef::Integer(number(raw)),
        (Type::TEXT | Type::VARCHAR | Type::NAME | Type::UNKNOWN, raw) => ValueRef::Text(raw),
        (Type::BYTEA, raw) => ValueRef::Blob(raw),
        (ty, _) => return Err(failure(format!("a column of the type {ty}"))),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_survive_and_keep_their_order(one in "[\0\x01\x02ab]{0,6}", other in "[\0\x01\x02ab]{0,6}") {
            let (first, second) = (escaped(&one), escaped(&other));
            prop_assert!(!first.contains('\0'));
            prop_assert_eq!(&*unescaped(first.as_bytes()), one.as_bytes());
            prop_assert_eq!(first.cmp(&second), one.cmp(&other));
        }
    }
}
