//! The pairing code that people read aloud and type: eight Crockford characters, shown as `XXXX-XXXX`.

use crate::{
    env::Env,
    secret::{Secret, SecretHash},
};

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A code in canonical form: eight upper-case characters without the dash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairingCode(Secret<String>);

// === impl PairingCode ===

impl PairingCode {
    pub fn generate(env: &Env) -> Self {
        let mut bytes = [0; 8];
        env.fill(&mut bytes);
        // 256 is a multiple of 32, so the low five bits are uniform.
        Self(Secret::new(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()))
    }

    /// Parses what a person typed: ignores case, dashes and spaces, and maps look-alike characters.
    pub fn parse(text: &str) -> Option<Self> {
        let mut code = String::with_capacity(8);
        for character in text.chars() {
            let folded = match character.to_ascii_uppercase() {
                '-' | ' ' => continue,
                'O' => '0',
                'I' | 'L' => '1',
                other => other,
            };
            if code.len() == 8 || !u8::try_from(folded).is_ok_and(|byte| ALPHABET.contains(&byte)) {
                return None;
            }
            code.push(folded);
        }
        (code.len() == 8).then(|| Self(Secret::new(code)))
    }

    /// `XXXX-XXXX`, for display.
    pub fn shown(&self) -> String {
        let code = self.0.expose();
        format!("{}-{}", &code[..4], &code[4..])
    }

    /// The stored hash. `key` is kept outside the database.
    pub fn hash(&self, key: &[u8; 32]) -> SecretHash {
        SecretHash::keyed(key, self.0.expose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_reads_back_however_it_is_typed() {
        let code = PairingCode::generate(&Env::seeded(3));
        let shown = code.shown();
        assert_eq!(shown.len(), 9);
        assert_eq!(PairingCode::parse(&shown), Some(code.clone()));
        assert_eq!(PairingCode::parse(&shown.to_lowercase().replace('-', " ")), Some(code));
        assert_eq!(PairingCode::parse("oOiL-0011").unwrap().shown(), "0011-0011");
        for wrong in ["", "ABCD-EFG", "ABCD-EFGHJ", "ABCD-EFGU", "ÀBCD-EFGH"] {
            assert_eq!(PairingCode::parse(wrong), None, "{wrong}");
        }
    }
}
