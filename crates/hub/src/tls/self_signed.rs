//! The hub's self-signed certificate: one permanent key, and a certificate that is renewed in time, so that the pin
//! stays the same.

use std::{fs, io, path::Path, time::Duration};

use attache_os::private_file;
use attache_protocol::{Timestamp, env::Env};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SerialNumber,
};
use serde::{Deserialize, Serialize};

use super::{PemPair, TlsError};
use crate::identity::IdentityFolder;

/// What the certificate in the folder is valid for. Written after it, so that a crash in between only causes a new one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CertificateMeta {
    names: Vec<String>,
    valid_until: Timestamp,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest validity that browsers accept for a manually trusted certificate.
const CERTIFICATE_TTL: Duration = Duration::from_secs(820 * 24 * 60 * 60);
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The key and certificate in `<data>/tls`. Missing files are created. A certificate for other names, or one that
/// expires soon, is reissued for the same key.
pub(super) fn keep(data: &Path, names: &[String], env: &Env) -> Result<PemPair, TlsError> {
    let folder = data.join("tls");
    let [certificate, key, made] = ["certificate.pem", "key.pem", "made.json"].map(|name| folder.join(name));
    IdentityFolder::open(&folder).map_err(failed_to_write(&folder))?;
    let mut kept: Option<CertificateMeta> = fs::read(&made).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let pair = match fs::read_to_string(&key) {
        Ok(text) => KeyPair::from_pem(&text).map_err(|_| TlsError::Key(key.clone()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The existing certificate belongs to a lost key.
            if kept.take().is_some() {
                fs::remove_file(&made).map_err(failed_to_write(&made))?;
            }
            let pair = KeyPair::generate().map_err(TlsError::Make)?;
            private_file::write(&key, pair.serialize_pem().as_bytes()).map_err(failed_to_write(&key))?;
            pair
        }
        Err(source) => return Err(TlsError::Read { path: key, source }),
    };
    let now = env.now();
    let good = kept.is_some_and(|kept| kept.names == names && kept.valid_until.since(now) > RENEW_BEFORE);
    if !good || !certificate.exists() {
        let fresh = CertificateMeta { names: names.to_vec(), valid_until: now.plus(CERTIFICATE_TTL) };
        let text = sign(&pair, &fresh, env).map_err(TlsError::Make)?;
        private_file::write(&certificate, text.as_bytes()).map_err(failed_to_write(&certificate))?;
        let text = serde_json::to_vec(&fresh).expect("our own types serialise to JSON");
        private_file::write(&made, &text).map_err(failed_to_write(&made))?;
    }
    PemPair::read(&certificate, &key)
}

fn failed_to_write(path: &Path) -> impl FnOnce(io::Error) -> TlsError {
    let path = path.to_owned();
    |source| TlsError::Write { path, source }
}

fn sign(key: &KeyPair, made: &CertificateMeta, env: &Env) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(made.names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Attache hub");
    let start = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| start + Duration::from_millis(u64::try_from(time.millis()).unwrap_or(0));
    // Allows for devices whose clock is behind.
    params.not_before = at(env.now().minus(DAY));
    params.not_after = at(made.valid_until);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Browsers reject a second certificate with the same issuer and serial number.
    params.serial_number = Some(SerialNumber::from_slice(env.uuid().as_bytes()));
    Ok(params.self_signed(key)?.pem())
}
