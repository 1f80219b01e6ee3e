//! How much memory a request takes once it is decoded, from its bytes alone. Two bytes can be an empty part or value, which takes
//! a hundred times as much in memory, so this has to be known before anything is decoded.
//!
//! Only the fields that can be many or can hold many are followed. What is in other fields is inline, or no larger than its
//! bytes. The estimate is never below what the decoder and the conversion allocate.

use std::mem::size_of;

use prost_types::Value;

use super::{v1, v03};
use crate::Part;

/// The message isn't one, or it is nested too deeply. It must not be decoded: the decoder would notice that only after it had
/// allocated more than was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message, or nested too deeply")]
pub struct MalformedMessage;

/// A message type: the fields that count.
pub(super) struct MessageType(pub(super) &'static [(u32, FieldWeight)]);

pub(super) enum FieldWeight {
    /// A message, and what each one takes besides its content.
    Message(&'static MessageType, usize),
    /// A string that there can be many of.
    Strings,
}

/// As many levels as the decoder follows.
const MAX_LEVELS: usize = 100;
/// A list grows by doubling, so that it and its predecessor have up to three times the place that is needed.
const GROWTH: usize = 3;
/// What an allocation takes at least.
const ALLOCATION: usize = 32;
/// The least that a list allocates, and what a leaf of a map has room for.
const FIRST_ITEMS: usize = 4;
const LEAF_ENTRIES: usize = 11;
/// In the decoded message and in the one of the model.
const STRING: usize = 2 * (GROWTH * size_of::<String>() + ALLOCATION);
const ENTRY: usize = size_of::<(String, Value)>();
const STRUCT: usize = LEAF_ENTRIES * ENTRY + ALLOCATION;
const LIST: usize = FIRST_ITEMS * size_of::<Value>() + ALLOCATION;
const PART: usize = GROWTH * (size_of::<v1::Part>() + size_of::<Part>()) + 4 * ALLOCATION;
const OLD_PART: usize = GROWTH * (size_of::<v03::Part>() + size_of::<Part>()) + 4 * ALLOCATION;

pub(super) static VALUE_TYPE: MessageType =
    MessageType(&[(5, FieldWeight::Message(&STRUCT_TYPE, STRUCT)), (6, FieldWeight::Message(&LIST_TYPE, LIST))]);
static LIST_TYPE: MessageType =
    MessageType(&[(1, FieldWeight::Message(&VALUE_TYPE, GROWTH * size_of::<Value>() + ALLOCATION))]);
pub(super) static STRUCT_TYPE: MessageType =
    MessageType(&[(1, FieldWeight::Message(&ENTRY_TYPE, GROWTH * ENTRY + ALLOCATION))]);
static ENTRY_TYPE: MessageType = MessageType(&[(2, FieldWeight::Message(&VALUE_TYPE, 0))]);

static PART_TYPE: MessageType =
    MessageType(&[(4, FieldWeight::Message(&VALUE_TYPE, 0)), (5, FieldWeight::Message(&STRUCT_TYPE, STRUCT))]);
static MESSAGE_TYPE: MessageType = MessageType(&[
    (5, FieldWeight::Message(&PART_TYPE, PART)),
    (6, FieldWeight::Message(&STRUCT_TYPE, STRUCT)),
    (7, FieldWeight::Strings),
    (8, FieldWeight::Strings),
]);
static CONFIGURATION_TYPE: MessageType = MessageType(&[(1, FieldWeight::Strings)]);
static SEND_TYPE: MessageType = MessageType(&[
    (2, FieldWeight::Message(&MESSAGE_TYPE, 0)),
    (3, FieldWeight::Message(&CONFIGURATION_TYPE, 0)),
    (4, FieldWeight::Message(&STRUCT_TYPE, STRUCT)),
]);
static CANCEL_TYPE: MessageType = MessageType(&[(3, FieldWeight::Message(&STRUCT_TYPE, STRUCT))]);

static OLD_DATA_TYPE: MessageType = MessageType(&[(1, FieldWeight::Message(&STRUCT_TYPE, STRUCT))]);
static OLD_PART_TYPE: MessageType =
    MessageType(&[(3, FieldWeight::Message(&OLD_DATA_TYPE, 0)), (4, FieldWeight::Message(&STRUCT_TYPE, STRUCT))]);
static OLD_MESSAGE_TYPE: MessageType = MessageType(&[
    (5, FieldWeight::Message(&OLD_PART_TYPE, OLD_PART)),
    (6, FieldWeight::Message(&STRUCT_TYPE, STRUCT)),
    (7, FieldWeight::Strings),
]);
static OLD_AUTHENTICATION_TYPE: MessageType = MessageType(&[(1, FieldWeight::Strings)]);
static OLD_PUSH_TYPE: MessageType = MessageType(&[(4, FieldWeight::Message(&OLD_AUTHENTICATION_TYPE, 0))]);
static OLD_CONFIGURATION_TYPE: MessageType =
    MessageType(&[(1, FieldWeight::Strings), (2, FieldWeight::Message(&OLD_PUSH_TYPE, 0))]);
static OLD_SEND_TYPE: MessageType = MessageType(&[
    (1, FieldWeight::Message(&OLD_MESSAGE_TYPE, 0)),
    (2, FieldWeight::Message(&OLD_CONFIGURATION_TYPE, 0)),
    (3, FieldWeight::Message(&STRUCT_TYPE, STRUCT)),
]);
static OLD_TASK_PUSH_TYPE: MessageType = MessageType(&[(2, FieldWeight::Message(&OLD_PUSH_TYPE, 0))]);
static OLD_CREATE_PUSH_TYPE: MessageType = MessageType(&[(3, FieldWeight::Message(&OLD_TASK_PUSH_TYPE, 0))]);
/// Nothing in it can be many.
static PLAIN_TYPE: MessageType = MessageType(&[]);

/// The memory that a request takes besides its bytes. `path` names the service and the method.
pub fn decoded_weight(path: &str, message: &[u8]) -> Result<usize, MalformedMessage> {
    let kind = request_type(path);
    let mut weight = 0;
    kind.add(message, MAX_LEVELS, &mut weight)?;
    Ok(weight)
}

pub(super) fn request_type(path: &str) -> &'static MessageType {
    match path.trim_start_matches('/').split_once('/') {
        Some(("lf.a2a.v1.A2AService", "SendMessage" | "SendStreamingMessage")) => &SEND_TYPE,
        Some(("lf.a2a.v1.A2AService", "CancelTask")) => &CANCEL_TYPE,
        Some(("a2a.v1.A2AService", "SendMessage" | "SendStreamingMessage")) => &OLD_SEND_TYPE,
        Some(("a2a.v1.A2AService", "CreateTaskPushNotificationConfig")) => &OLD_CREATE_PUSH_TYPE,
        _ => &PLAIN_TYPE,
    }
}

// === impl MessageType ===

impl MessageType {
    fn add(&self, mut rest: &[u8], levels: usize, weight: &mut usize) -> Result<(), MalformedMessage> {
        let levels = levels.checked_sub(1).ok_or(MalformedMessage)?;
        while !rest.is_empty() {
            let key = u32::try_from(varint(&mut rest)?).map_err(|_| MalformedMessage)?;
            match key & 7 {
                0 => drop(varint(&mut rest)?),
                1 => drop(take(&mut rest, 8)?),
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).map_err(|_| MalformedMessage)?;
                    let content = take(&mut rest, length)?;
                    match self.0.iter().find(|(number, _)| *number == key >> 3) {
                        Some((_, FieldWeight::Message(kind, own))) => {
                            *weight = weight.saturating_add(*own);
                            kind.add(content, levels, weight)?;
                        }
                        Some((_, FieldWeight::Strings)) => *weight = weight.saturating_add(STRING),
                        None => {}
                    }
                }
                // The decoder skips groups. What is in one counts like a part of this message.
                3 | 4 => {}
                5 => drop(take(&mut rest, 4)?),
                _ => return Err(MalformedMessage),
            }
        }
        Ok(())
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], MalformedMessage> {
    let (taken, left) = rest.split_at_checked(length).ok_or(MalformedMessage)?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, MalformedMessage> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(MalformedMessage)
}
