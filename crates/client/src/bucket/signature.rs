//! Signs requests to an object store: AWS signature version 4, which every S3-compatible server checks.

use std::fmt::Write as _;

use attache_protocol::{Secret, digest::hex};
use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256},
};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Who signs, for which region.
#[derive(Debug)]
pub(super) struct RequestSigner<'a> {
    pub(super) access_key: &'a str,
    pub(super) secret_key: &'a Secret<String>,
    pub(super) region: &'a str,
    /// `20130524T000000Z`
    pub(super) time: &'a str,
}

/// What is signed. Everything is encoded as it is sent.
#[derive(Debug)]
pub(super) struct SignedParts<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Sorted by name.
    pub(super) query: &'a str,
    /// Names in lower case, sorted.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// The SHA-256 of the body, in hex.
    pub(super) payload: &'a str,
}

// === impl RequestSigner ===

impl RequestSigner<'_> {
    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self, parts: &SignedParts<'_>) -> String {
        let day = self.time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let names: Vec<&str> = parts.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut canonical = format!("{}\n{}\n{}\n", parts.method, parts.path, parts.query);
        for (name, value) in parts.headers {
            let _ = writeln!(canonical, "{name}:{}", value.trim());
        }
        let _ = write!(canonical, "\n{names}\n{}", parts.payload);
        let request = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
        let signed = format!("{ALGORITHM}\n{}\n{scope}\n{request}", self.time);
        let first = format!("AWS4{}", self.secret_key.expose());
        let key = [day, self.region, "s3", "aws4_request"]
            .iter()
            .fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()).as_ref().to_vec());
        let signature = hex(mac(&key, signed.as_bytes()).as_ref());
        let Self { access_key, .. } = self;
        format!("{ALGORITHM} Credential={access_key}/{scope},SignedHeaders={names},Signature={signature}")
    }
}

fn mac(key: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const TIME: &str = "20130524T000000Z";
    const HOST: &str = "examplebucket.s3.amazonaws.com";

    fn signature(parts: &SignedParts<'_>) -> String {
        let secret_key = Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned());
        let signer = RequestSigner {
            access_key: "AKIAIOSFODNN7EXAMPLE",
            secret_key: &secret_key,
            region: "us-east-1",
            time: TIME,
        };
        let authorization = signer.authorization(parts);
        authorization.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    // The two examples that the documentation of S3 works out.
    #[test]
    fn the_documented_examples_have_the_documented_signatures() {
        let headers = [("host", HOST), ("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY), ("x-amz-date", TIME)];
        let get = SignedParts { method: "GET", path: "/test.txt", query: "", headers: &headers, payload: EMPTY };
        assert_eq!(signature(&get), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

        let headers = [("host", HOST), ("x-amz-content-sha256", EMPTY), ("x-amz-date", TIME)];
        let list =
            SignedParts { method: "GET", path: "/", query: "max-keys=2&prefix=J", headers: &headers, payload: EMPTY };
        assert_eq!(signature(&list), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    }
}
