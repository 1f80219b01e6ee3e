//! Passkeys: add and remove one's own, sign in with one, and confirm approvals.
//!
//! A challenge lasts two minutes and is answered once, at whichever node. What it is for is kept with it and nowhere else, so
//! that a signature confirms exactly what the hub was asked to have confirmed.

use std::{net::IpAddr, time::Duration};

use attache_protocol::{
    Code, KeyId, PasskeyId, PermissionId, Secret, Timestamp, UserId, digest,
    wire::{
        account::ApprovalConfirmation,
        permission::{DecisionRequest, PermissionRequest},
        user::UpdateUserRequest,
    },
};
use attache_store::record::{
    KeyKind, StoredCredential,
    passkey::{NewPasskey, PasskeyRecord},
    shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
    user::{UserRecord, UserRef},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Handle, Principal, Result, check,
    control::DecisionOrigin,
    error::about,
    identity::{
        Action, CredentialLookup, SignedInSession,
        limiter::ClientNetwork,
        webauthn::{self, CreationOptions, NewCredential, PasskeyAssertion, RelyingParty, RequestOptions},
    },
};

/// How long a person has to answer.
const CHALLENGE_TIMEOUT: Duration = Duration::from_secs(120);
/// Unanswered ones of one session, or of one address that signs in. The oldest are dropped.
const MAX_CHALLENGES: usize = 16;
/// Unanswered ones of everybody who signs in.
const MAX_SIGN_IN_CHALLENGES: usize = 16_384;
const MAX_SIGN_IN_BYTES: usize = 8 * 1024 * 1024;
/// Passkeys of one person.
const MAX_PASSKEYS: usize = 16;
const WHAT: &str = "passkey";

/// A passkey, as its person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passkey {
    pub id: PasskeyId,
    pub name: String,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
}

/// A challenge that waits for its answer, as the store keeps it under the hash of its bytes.
#[derive(Debug, Serialize, Deserialize)]
struct PendingChallenge {
    /// The page that asked for it.
    origin: String,
    purpose: ChallengePurpose,
}

/// What a passkey is made or asked for.
#[derive(Debug, Serialize, Deserialize)]
enum ChallengePurpose {
    SignIn,
    Add { key: KeyId },
    Approve { key: KeyId, confirmed: ConfirmedDecision },
}

/// An approval, and what was shown to the person who gives it.
#[derive(Debug, Serialize, Deserialize)]
struct ConfirmedDecision {
    permission: PermissionId,
    /// The hash of everything that it covers.
    subject: String,
    decision: DecisionRequest,
}

// === impl Handle ===

impl Handle {
    /// The caller's own passkeys, oldest first.
    pub async fn passkeys(&self, by: &Principal) -> Result<Vec<Passkey>> {
        let Some(user) = by.own_user() else { return Ok(Vec::new()) };
        Ok(self.passkeys_of(by, user).await?.into_iter().map(Passkey::from).collect())
    }

    /// What a browser needs to make a passkey for the caller. As for a new password, they give their current one.
    pub async fn passkey_creation(
        &self,
        by: &Principal,
        origin: &str,
        current_password: Option<Secret<String>>,
    ) -> Result<CreationOptions> {
        let (user, key) = self.check_passkey_owner(by).await?;
        self.attempts().credential(by)?;
        let request = UpdateUserRequest { current_password, ..UpdateUserRequest::default() };
        self.check_current(by, &user, &request).await?;
        let known = self.passkeys_of(by, user.id).await?;
        if known.len() >= MAX_PASSKEYS {
            return Err(Error::new(Code::InvalidRequest, format!("You already have {MAX_PASSKEYS} passkeys."))
                .hint("Remove one that you don't use any more."));
        }
        let party = relying_party(origin)?;
        let challenge = self.challenge(&party, &key.to_string(), ChallengePurpose::Add { key }).await?;
        Ok(CreationOptions {
            rp_id: party.id().to_owned(),
            challenge,
            user_id: webauthn::text(user.id.uuid().as_bytes()),
            user_name: user.name,
            algorithms: webauthn::ALGORITHMS,
            exclude: known.iter().map(|passkey| webauthn::text(&passkey.credential)).collect(),
            timeout_ms: timeout_ms(),
        })
    }

    /// Adds the passkey that the browser made.
    pub async fn add_passkey(&self, by: &Principal, name: &str, made: NewCredential) -> Result<Passkey> {
        let (user, key) = self.check_passkey_owner(by).await?;
        check::line("name", name, 1..=100)?;
        let (party, purpose, challenge) = self.answered(SharedValueKind::PasskeyChallenge, &made.client_data).await?;
        if !matches!(purpose, ChallengePurpose::Add { key: asked } if asked == key) {
            return Err(expired());
        }
        let registered = webauthn::register(&made, &party, &challenge).map_err(|flaw| {
            Error::new(Code::InvalidRequest, format!("The passkey can't be added: {flaw}."))
                .hint("Try again, with another device or browser if it fails again.")
        })?;
        let new = NewPasskey {
            id: self.env().passkey_id(),
            user: user.id,
            name: name.to_owned(),
            credential: made.id,
            public_key: registered.public_key,
            counter: registered.counter,
        };
        match self.store().add_passkey(self.context(by), new).await {
            Ok(added) => Ok(added.into()),
            Err(attache_store::Error::NameTaken) => {
                Err(Error::new(Code::InvalidRequest, "This passkey was added before."))
            }
            Err(error) => Err(Error::from_store(WHAT, error)),
        }
    }

    /// Removes one of the caller's own, and ends the sessions that were opened with it.
    pub async fn remove_passkey(&self, by: &Principal, passkey: PasskeyId) -> Result<Passkey> {
        let _permit = by.may(Action::EditUser)?;
        by.lasting("remove a passkey")?;
        let user = by.own_user().ok_or_else(|| Error::not_found(WHAT))?;
        if !by.is_in_person() {
            return Err(Error::forbidden(
                "This credential has fewer rights than its person, so it can't remove a passkey.",
            )
            .hint("Sign in with your own password, passkey or key."));
        }
        let removed = self.store().remove_passkey(self.context(by), user, passkey).await.map_err(about(WHAT))?;
        self.credentials().forget_user(user);
        Ok(removed.into())
    }

    /// What a browser needs to sign somebody in with a passkey of this page.
    pub async fn passkey_sign_in(&self, origin: &str, from: IpAddr) -> Result<RequestOptions> {
        let party = relying_party(origin)?;
        let holder = ClientNetwork::from(from).to_string();
        let challenge = self.challenge(&party, &holder, ChallengePurpose::SignIn).await?;
        Ok(RequestOptions { rp_id: party.id().to_owned(), challenge, allow: Vec::new(), timeout_ms: timeout_ms() })
    }

    /// Opens a session for a passkey. It ends when the passkey is removed. Wrong ones are limited like wrong passwords.
    pub async fn sign_in_with_passkey(&self, signed: PasskeyAssertion, from: IpAddr) -> Result<SignedInSession> {
        let slot = self.attempts().by_address.reserve(from)?;
        let judged = self.judge_passkey_sign_in(&signed).await;
        let is_wrong = judged.as_ref().is_err_and(|error| error.code == Code::PasskeyRefused);
        if !is_wrong {
            slot.give_back();
        }
        let passkey = judged?;
        let user = UserRef::Id(passkey.user);
        let user = self.store().user(passkey.tenant, user).await.map_err(about("user"))?;
        self.open_passkey_session(&user, passkey.id, from).await
    }

    async fn judge_passkey_sign_in(&self, signed: &PasskeyAssertion) -> Result<PasskeyRecord> {
        let (party, _, challenge) = self.answered(SharedValueKind::SignInChallenge, &signed.client_data).await?;
        self.judge_passkey(signed, &party, &challenge, None).await
    }

    /// What a browser needs to have the caller confirm this approval with a passkey of theirs.
    pub async fn approval_confirmation(
        &self,
        by: &Principal,
        permission: PermissionId,
        decision: DecisionRequest,
        origin: &str,
    ) -> Result<RequestOptions> {
        let asked = self.decidable(by, permission).await?;
        let (Some(user), Some(key)) = (by.own_user(), by.key()) else {
            return Err(Error::forbidden("Only a person can confirm an approval with a passkey."));
        };
        let known = self.passkeys_of(by, user).await?;
        if known.is_empty() {
            return Err(no_passkey());
        }
        let party = relying_party(origin)?;
        let confirmed = ConfirmedDecision { permission, subject: digest::hex(&asked.subject.0), decision };
        let purpose = ChallengePurpose::Approve { key, confirmed };
        let challenge = self.challenge(&party, &key.to_string(), purpose).await?;
        Ok(RequestOptions {
            rp_id: party.id().to_owned(),
            challenge,
            allow: known.iter().map(|passkey| webauthn::text(&passkey.credential)).collect(),
            timeout_ms: timeout_ms(),
        })
    }

    /// Decides as the challenge says that the caller's passkey has signed.
    pub async fn decide_with_passkey(
        &self,
        by: &Principal,
        permission: PermissionId,
        signed: PasskeyAssertion,
        from: Option<String>,
    ) -> Result<PermissionRequest> {
        let (party, purpose, challenge) = self.answered(SharedValueKind::PasskeyChallenge, &signed.client_data).await?;
        let ChallengePurpose::Approve { key, confirmed } = purpose else { return Err(expired()) };
        if by.key() != Some(key) || confirmed.permission != permission {
            return Err(expired());
        }
        self.judge_passkey(&signed, &party, &challenge, Some(by)).await?;
        let asked = self.decidable(by, permission).await?;
        if digest::hex(&asked.subject.0) != confirmed.subject {
            return Err(Error::new(Code::VersionChanged, "The request is not the one that was confirmed."));
        }
        let place = DecisionOrigin { via: "passkey", from };
        self.decide_confirmed(by, permission, confirmed.decision, place, ApprovalConfirmation::Passkey).await
    }

    /// Only an agent's owner says what its approvals need, in person, and somebody has to be able to give them.
    pub(super) async fn check_confirmation(
        &self,
        by: &Principal,
        owner: Option<UserId>,
        needed: ApprovalConfirmation,
    ) -> Result<()> {
        const TRIED: &str = "change what approvals of this agent need";
        self.check_lasting(by, TRIED).await?;
        let is_owner = match owner {
            Some(owner) => by.is_in_person_as(owner),
            None => by.is_in_person() && by.has_rights_of(None),
        };
        if !is_owner {
            return Err(Error::new(Code::Forbidden, format!("Only its owner can {TRIED}, in person."))
                .hint("Sign in as its owner with a password or passkey, or use a key of theirs with their own role and without scopes."));
        }
        match (needed, by.own_user()) {
            (ApprovalConfirmation::None, _) => Ok(()),
            (ApprovalConfirmation::Passkey, Some(user)) if !self.passkeys_of(by, user).await?.is_empty() => Ok(()),
            (ApprovalConfirmation::Passkey, _) => Err(no_passkey()),
        }
    }

    /// The caller and their session. At least what a new password takes: a passkey signs in as the person.
    async fn check_passkey_owner(&self, by: &Principal) -> Result<(UserRecord, KeyId)> {
        let _permit = by.may(Action::EditUser)?;
        self.check_endless(by).await?;
        let (Some(user), Some(key)) = (by.user.filter(|_| by.is_in_person()), by.key()) else {
            return Err(Error::forbidden("This credential has fewer rights than its person, or someone else issued it, and a passkey would have all rights.")
                .hint("Sign in with your own password or key."));
        };
        match self.credential(CredentialLookup::Key(key)).await? {
            StoredCredential::Key { kind: KeyKind::Session, .. } => {}
            StoredCredential::Key { kind: KeyKind::Api, .. } | StoredCredential::Runtime { .. } => {
                return Err(
                    Error::forbidden("A passkey is added in the console.").hint("Sign in there: `attache login`.")
                );
            }
        }
        let user = self.store().user(by.tenant, UserRef::Id(user)).await.map_err(about("user"))?;
        Ok((user, key))
    }

    async fn passkeys_of(&self, by: &Principal, user: UserId) -> Result<Vec<PasskeyRecord>> {
        self.store().passkeys(by.tenant, user).await.map_err(about("user"))
    }

    /// A new challenge, in base64url.
    async fn challenge(&self, party: &RelyingParty, holder: &str, purpose: ChallengePurpose) -> Result<String> {
        let mut bytes = [0; 32];
        self.env().fill(&mut bytes);
        let (kind, limit) = match purpose {
            ChallengePurpose::SignIn => {
                let (per_holder, values, bytes) = (MAX_CHALLENGES, MAX_SIGN_IN_CHALLENGES, MAX_SIGN_IN_BYTES);
                (SharedValueKind::SignInChallenge, SharedValueLimit::Total { per_holder, values, bytes })
            }
            ChallengePurpose::Add { .. } | ChallengePurpose::Approve { .. } => {
                (SharedValueKind::PasskeyChallenge, SharedValueLimit::PerHolder(MAX_CHALLENGES))
            }
        };
        let pending = PendingChallenge { origin: party.origin().to_owned(), purpose };
        let value = SharedValue {
            kind,
            name: name_of(&bytes),
            tenant: self.tenant(),
            holder: holder.to_owned(),
            value: serde_json::to_vec(&pending).map_err(|error| Error::internal(&error))?,
            expires_at: self.now().plus(CHALLENGE_TIMEOUT),
        };
        match self.store().keep_value(value, limit, self.now()).await.map_err(about(WHAT))? {
            true => Ok(webauthn::text(&bytes)),
            false => Err(Error::new(Code::Overloaded, "Too many people are signing in right now.")),
        }
    }

    /// Uses up the challenge that a browser says it answers. Of several callers, at whatever nodes, one gets it.
    async fn answered(
        &self,
        kind: SharedValueKind,
        client_data: &[u8],
    ) -> Result<(RelyingParty, ChallengePurpose, Vec<u8>)> {
        let challenge = webauthn::claimed_challenge(client_data).ok_or_else(expired)?;
        let (name, at) = (name_of(&challenge), self.now());
        let found = self.store().take_value(kind, &name, at, at).await.map_err(about(WHAT))?;
        let pending = found.and_then(|found| serde_json::from_slice::<PendingChallenge>(&found.value).ok());
        let PendingChallenge { origin, purpose } = pending.ok_or_else(expired)?;
        Ok((RelyingParty::of(&origin).ok_or_else(expired)?, purpose, challenge))
    }

    /// The passkey that signed the challenge: of this person, or of whoever it belongs to.
    async fn judge_passkey(
        &self,
        signed: &PasskeyAssertion,
        party: &RelyingParty,
        challenge: &[u8],
        person: Option<&Principal>,
    ) -> Result<PasskeyRecord> {
        let passkey = match self.store().passkey(self.tenant(), &signed.id).await {
            Ok(passkey) => passkey,
            Err(attache_store::Error::NotFound) => return Err(refused("the hub doesn't know the passkey")),
            Err(error) => return Err(Error::from_store(WHAT, error)),
        };
        let is_theirs = person.is_none_or(|by| by.own_user() == Some(passkey.user));
        let handle = &signed.user_handle[..];
        if !is_theirs || !(handle.is_empty() || handle == passkey.user.uuid().as_bytes()) {
            return Err(refused("it is the passkey of somebody else"));
        }
        let counter = webauthn::verify(signed, party, challenge, &passkey.public_key)
            .map_err(|flaw| refused(&flaw.to_string()))?;
        let used = self.store().use_passkey(passkey.tenant, passkey.id, counter, self.now()).await;
        match used.map_err(about(WHAT))? {
            true => Ok(passkey),
            false => {
                tracing::warn!(passkey.id = %passkey.id, user.id = %passkey.user, "a passkey's counter went back: there may be a copy of it");
                Err(refused("its counter went back, so that there may be a copy of it; remove it and add a new one"))
            }
        }
    }
}

fn relying_party(origin: &str) -> Result<RelyingParty> {
    RelyingParty::of(origin).ok_or_else(|| {
        Error::new(Code::InvalidRequest, "Browsers have no passkeys for this address.").hint(
            "Open the console under its name over HTTPS. On the hub's own machine, use http://localhost instead of http://127.0.0.1.",
        )
    })
}

fn name_of(challenge: &[u8]) -> String {
    digest::hex(blake3::hash(challenge).as_bytes())
}

fn timeout_ms() -> u64 {
    u64::try_from(CHALLENGE_TIMEOUT.as_millis()).unwrap_or(u64::MAX)
}

fn expired() -> Error {
    refused("it was asked for more than two minutes ago, or used before")
}

fn refused(why: &str) -> Error {
    Error::new(Code::PasskeyRefused, format!("The passkey doesn't count: {why}."))
}

fn no_passkey() -> Error {
    Error::new(Code::PasskeyRequired, "You have no passkey.").hint("Add one in the console: Settings, Passkeys.")
}

// === impl Passkey ===

impl From<PasskeyRecord> for Passkey {
    fn from(record: PasskeyRecord) -> Self {
        let PasskeyRecord { id, name, created_at, last_used_at, .. } = record;
        Self { id, name, created_at, last_used_at }
    }
}
