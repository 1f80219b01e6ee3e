//! What a button of a Telegram message sends when it is pressed: which decision, and the proof that this hub offered exactly
//! that decision of exactly that subject in that chat. Telegram carries 64 bytes.

use attache_protocol::PermissionId;
use attache_store::record::notification::NotificationTargetRecord;
use aws_lc_rs::constant_time;
use base64ct::{Base64UrlUnpadded, Encoding as _};
use uuid::Uuid;

use crate::Handle;

/// One decision that a message offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecisionButton {
    pub(crate) permission: PermissionId,
    pub(crate) approved: bool,
    proof: [u8; PROOF],
}

const CONTEXT: &str = "attache 2026 button of a Telegram message";
/// Bytes. Nobody guesses 192 bits.
const PROOF: usize = 24;
const ID: usize = 16;
const APPROVE: u8 = 1;
const DENY: u8 = 0;

// === impl DecisionButton ===

impl DecisionButton {
    /// `subject` is the hash of everything that the decision covers.
    pub(crate) fn new(
        hub: &Handle,
        target: &NotificationTargetRecord,
        permission: PermissionId,
        subject: &str,
        approved: bool,
    ) -> Self {
        Self { permission, approved, proof: proof(hub, target, permission, subject, approved) }
    }

    /// Whether the hub offered this in the target's chat, with the rights of the key that made the target, and what is asked is
    /// still the same.
    pub(crate) fn was_offered(&self, hub: &Handle, target: &NotificationTargetRecord, subject: &str) -> bool {
        let expected = proof(hub, target, self.permission, subject, self.approved);
        constant_time::verify_slices_are_equal(&expected, &self.proof).is_ok()
    }

    /// The `callback_data`.
    pub(crate) fn write(&self) -> String {
        let verdict = if self.approved { APPROVE } else { DENY };
        let bytes = [&[verdict], &self.permission.uuid().as_bytes()[..], &self.proof].concat();
        Base64UrlUnpadded::encode_string(&bytes)
    }

    /// `None` for anything else. Whether the hub wrote it is another question.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let bytes = Base64UrlUnpadded::decode_vec(text).ok()?;
        let (verdict, rest) = bytes.split_first()?;
        let (id, proof) = rest.split_first_chunk::<ID>()?;
        let approved = match *verdict {
            APPROVE => true,
            DENY => false,
            _ => return None,
        };
        Some(Self {
            permission: PermissionId::from_uuid(Uuid::from_bytes(*id)),
            approved,
            proof: proof.try_into().ok()?,
        })
    }
}

fn proof(
    hub: &Handle,
    target: &NotificationTargetRecord,
    permission: PermissionId,
    subject: &str,
    approved: bool,
) -> [u8; PROOF] {
    let ids = [target.id.uuid(), target.key.uuid(), permission.uuid()];
    // All but the last are of a fixed length, so that no two decisions give the same bytes.
    let mut message: Vec<u8> = ids.iter().flat_map(|id| *id.as_bytes()).collect();
    message.push(if approved { APPROVE } else { DENY });
    message.extend(subject.as_bytes());
    let tag = hub.tag(CONTEXT, &message);
    *tag.first_chunk().expect("a tag is longer than a proof")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_button_is_short_and_comes_back() {
        let permission = PermissionId::from_uuid(Uuid::from_u128(7));
        for approved in [true, false] {
            let button = DecisionButton { permission, approved, proof: [9; PROOF] };
            let text = button.write();
            assert_eq!(text.len(), 55, "Telegram carries 64 bytes");
            assert_eq!(DecisionButton::read(&text), Some(button));
            for end in 0..text.len() {
                assert_eq!(DecisionButton::read(&text[..end]), None, "{end}");
            }
            assert_eq!(DecisionButton::read(&format!("{text}AAAA")), None);
        }
        for other in ["", "approve", "AAAA", &"A".repeat(64), &"_".repeat(55), "\u{202e}"] {
            let read = DecisionButton::read(other);
            assert!(read.is_none() || other == "A".repeat(55), "{other}");
        }
    }
}
