//! Resolves a credential to a principal, for every request and repeatedly for open streams.

use std::net::IpAddr;

use attache_protocol::{
    Actor, AgentId, Code, KeyId, RunId, RuntimeId, TenantId, Timestamp, UserId,
    rules::run::RunPhase,
    secret::{Kind, SecretHash},
    wire::{
        a2a_options::A2aOptions,
        account::Callers,
        key::{KeyScope, Role},
        runtime::RuntimeState,
    },
};
use attache_store::record::{AgentRef, KeyKind, RunRecord, RuntimeKind, StoredCredential, user::UserRef};
use tokio::time::Instant;

use crate::{
    Error, Handle, Result,
    error::about,
    identity::{
        CredentialLookup, PersonalCredential, PresentedCredential, Principal, PrincipalKind,
        token::{self, RunTokenClaims},
    },
    tls::Fingerprint,
};

// === impl Handle ===

impl Handle {
    /// The person, program or registered agent behind `Authorization: Bearer ak_…|<jwt>`.
    pub async fn authenticate_key(&self, secret: &str) -> Result<Principal> {
        if token::looks_like_one(secret) {
            self.authenticate_token(secret).await
        } else {
            self.authenticate(Kind::ApiKey, secret).await
        }
    }

    /// A token is valid only while its key is.
    async fn authenticate_token(&self, text: &str) -> Result<Principal> {
        if let Some(claims) = self.signer().read_run(text, self.now()) {
            let RunTokenClaims { tenant, sub: run, epoch, exp, .. } = claims;
            return self.check_run(tenant, run, epoch, Timestamp::from_millis(exp.saturating_mul(1000))).await;
        }
        let claims = self.signer().verify(text, self.now())?;
        let expires_at = Timestamp::from_millis(claims.exp.saturating_mul(1000));
        let proof =
            PresentedCredential::Token { key: claims.key, role: claims.role, scopes: claims.scopes, expires_at };
        let principal = self.check_proof(&proof).await?;
        if principal.tenant == claims.tenant { Ok(principal) } else { Err(unknown()) }
    }

    /// The device behind `X-Runtime-Token: rt_…`.
    pub async fn authenticate_runtime(&self, token: &str) -> Result<Principal> {
        self.authenticate(Kind::RuntimeToken, token).await
    }

    /// The person or program behind a client certificate. The handshake has proved possession of its private key.
    pub(crate) async fn authenticate_certificate(&self, client: Fingerprint) -> Result<Principal> {
        match self.check_proof(&PresentedCredential::Secret(client.hash())).await {
            Err(error) if error == unknown() => {
                Err(Error::unauthenticated("No key exists for this connection's certificate.")
                    .hint("Create one with `attache keys add NAME --certificate FILE`, or send a key."))
            }
            other => other,
        }
    }

    /// The person behind a console session.
    pub async fn authenticate_session(&self, secret: &str) -> Result<Principal> {
        self.authenticate(Kind::Session, secret).await
    }

    /// Counts a wrong credential shown to a surface outside this crate. Fails if there were too many.
    pub fn refuse_credential(&self, from: IpAddr) -> Result<()> {
        self.attempts().failed(from)
    }

    /// A caller without a credential, if the agent's owner allows them.
    pub async fn anonymous(&self, agent: AgentId) -> Result<Principal> {
        self.check_open(self.tenant(), agent).await
    }

    async fn check_open(&self, tenant: TenantId, agent: AgentId) -> Result<Principal> {
        let account = self.store().account(tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        if !A2aOptions::of(account.a2a.as_ref()).anonymous
            || account.callers == Callers::Owner
            || account.archived_at.is_some()
        {
            return Err(Error::no_credential());
        }
        let (who, proof) = (PrincipalKind::Anonymous { agent }, PresentedCredential::Nothing { tenant, agent });
        Ok(Principal {
            tenant,
            who,
            user: None,
            owner_role: None,
            user_role: None,
            scopes: None,
            ends_at: None,
            is_issued: false,
            proof,
        })
    }

    /// The current rights of the key or session that created a pairing code.
    pub(crate) async fn check_maker(&self, maker: KeyId) -> Result<Principal> {
        self.check_proof(&PresentedCredential::Maker(maker)).await
    }

    /// The person who created this run, with the rights that they and their credential have now. A session that has expired
    /// since still speaks for what was done in it, if it was in person.
    pub(crate) async fn creator_of(&self, run: &RunRecord) -> Result<Principal> {
        let Actor::Key(key) = run.caller else { return Err(unknown()) };
        let by = match (self.check_maker(key).await, self.credential(CredentialLookup::Key(key)).await?) {
            (
                Err(_),
                StoredCredential::Key {
                    tenant,
                    user: Some(user),
                    role,
                    user_role,
                    revoked: false,
                    kind: KeyKind::Session,
                    opener: None,
                    agent: None,
                    ..
                },
            ) if run.spec.in_person => Principal {
                tenant,
                who: PrincipalKind::Key { key, role },
                user: Some(user),
                owner_role: None,
                user_role,
                scopes: None,
                ends_at: None,
                is_issued: false,
                proof: PresentedCredential::Maker(key),
            },
            (checked, _) => checked?,
        };
        if by.tenant == run.tenant && by.user == run.user { Ok(by) } else { Err(unknown()) }
    }

    /// Whether the principal's credential is still valid, and its current rights.
    pub async fn recheck(&self, principal: &Principal) -> Result<Principal> {
        self.check_proof(&principal.proof).await
    }

    async fn authenticate(&self, kind: Kind, secret: &str) -> Result<Principal> {
        if !secret.starts_with(kind.prefix()) {
            return Err(unknown());
        }
        let secret = SecretHash::of(secret);
        let principal = match self.check_proof(&PresentedCredential::Secret(secret)).await {
            Err(error) if error.code == Code::TokenReplaced => {
                self.note_token_reuse(secret).await;
                return Err(error);
            }
            checked => checked?,
        };
        match (kind, principal.who) {
            (Kind::RuntimeToken, PrincipalKind::Runtime { kind: RuntimeKind::Device, .. })
            | (Kind::ApiKey, PrincipalKind::Runtime { kind: RuntimeKind::AgentKey, .. })
            | (Kind::ApiKey, PrincipalKind::Outside { .. })
            | (Kind::ApiKey | Kind::Session, PrincipalKind::Key { .. }) => Ok(principal),
            _ => Err(unknown()),
        }
    }

    /// The current rights of the credential.
    pub(super) async fn check_proof(&self, proof: &PresentedCredential) -> Result<Principal> {
        let by = match proof {
            PresentedCredential::Secret(secret) => CredentialLookup::Secret(*secret),
            PresentedCredential::Token { expires_at, .. } if *expires_at <= self.now() => {
                return Err(Error::unauthenticated("This token has expired."));
            }
            PresentedCredential::Token { key, .. } | PresentedCredential::Maker(key) => CredentialLookup::Key(*key),
            PresentedCredential::Nothing { tenant, agent } => return self.check_open(*tenant, *agent).await,
            PresentedCredential::Here { tenant, runtime } => return self.check_here(*tenant, *runtime).await,
            PresentedCredential::Run { tenant, run, epoch, expires_at } => {
                return self.check_run(*tenant, *run, *epoch, *expires_at).await;
            }
        };
        match self.credential(by).await? {
            StoredCredential::Runtime {
                tenant,
                runtime,
                agent,
                user,
                role,
                kind,
                state: RuntimeState::Active,
                token,
            } => {
                self.check_token(proof, (runtime, agent), token).await?;
                let (who, proof) = (PrincipalKind::Runtime { runtime, agent, kind }, proof.clone());
                let owner_role = role.filter(|_| kind == RuntimeKind::AgentKey);
                Ok(Principal {
                    tenant,
                    who,
                    user,
                    owner_role,
                    user_role: None,
                    scopes: None,
                    ends_at: None,
                    is_issued: false,
                    proof,
                })
            }
            StoredCredential::Runtime { kind: RuntimeKind::Device | RuntimeKind::Hub, state, .. } => {
                Err(Error::runtime_ended(state))
            }
            StoredCredential::Runtime { kind: RuntimeKind::AgentKey, state, .. } => Err(Error::agent_key_ended(state)),
            StoredCredential::Key { revoked: true, .. } => Err(Error::unauthenticated("This key was revoked.")),
            StoredCredential::Key { expires_at: Some(at), .. } if at <= self.now() => {
                Err(Error::unauthenticated("This key has expired."))
            }
            StoredCredential::Key { tenant, key, user, role, user_role, scopes, expires_at, agent, opener, .. } => {
                let ((role, scopes), is_issued) = self.limit_by_openers(user, (role, scopes), opener).await?;
                let (role, scopes) = match proof {
                    PresentedCredential::Secret(_)
                    | PresentedCredential::Maker(_)
                    | PresentedCredential::Nothing { .. }
                    | PresentedCredential::Here { .. }
                    | PresentedCredential::Run { .. } => (role, scopes),
                    PresentedCredential::Token { role: claimed, scopes: said, .. } => {
                        lesser((role, scopes), (*claimed, said.as_deref()))
                    }
                };
                let who = agent.map_or(PrincipalKind::Key { key, role }, |agent| PrincipalKind::Outside { key, agent });
                let mut by = Principal {
                    tenant,
                    who,
                    user,
                    owner_role: agent.and(user).map(|_| role),
                    user_role: user_role.filter(|_| agent.is_none()),
                    scopes,
                    ends_at: expires_at,
                    is_issued,
                    proof: proof.clone(),
                };
                by.ends_at = by.ends_at.into_iter().chain(by.token_ends_at()).min();
                Ok(by)
            }
        }
    }

    /// Whether a key or session is the person's own, with all of their rights.
    pub(crate) async fn is_own_key(&self, key: KeyId, person: UserId) -> Result<bool> {
        let StoredCredential::Key { user, role, user_role, scopes, revoked, agent, opener, .. } =
            self.credential(CredentialLookup::Key(key)).await?
        else {
            return Ok(false);
        };
        if user != Some(person) || revoked || agent.is_some() {
            return Ok(false);
        }
        let ((role, scopes), is_issued) = self.limit_by_openers(user, (role, scopes), opener).await?;
        Ok(PersonalCredential { role, scopes: scopes.as_deref(), is_issued, person: user_role }.is_whole())
    }

    /// Whether everyone else who had a part in issuing this credential has a higher role than this.
    pub(crate) async fn issuers_are_above(&self, by: &Principal, role: Role) -> Result<bool> {
        let mut next = by.key();
        while let Some(key) = next {
            let StoredCredential::Key { user, role: own, opener, .. } =
                self.credential(CredentialLookup::Key(key)).await?
            else {
                break;
            };
            if user != by.user && own <= role {
                return Ok(false);
            }
            next = opener;
        }
        Ok(true)
    }

    /// Limits a credential to what those it was opened or issued with may still do. Also whether someone else's is among
    /// them.
    async fn limit_by_openers(
        &self,
        user: Option<UserId>,
        mut rights: (Role, Option<Vec<KeyScope>>),
        mut opener: Option<KeyId>,
    ) -> Result<((Role, Option<Vec<KeyScope>>), bool)> {
        let mut is_issued = false;
        while let Some(key) = opener {
            let StoredCredential::Key { user: above, role, scopes, revoked, opener: next, .. } =
                self.credential(CredentialLookup::Key(key)).await?
            else {
                break;
            };
            if revoked {
                return Err(Error::unauthenticated("This key was revoked."));
            }
            is_issued |= above != user;
            rights = lesser(rights, (role, scopes.as_deref()));
            opener = next;
        }
        Ok((rights, is_issued))
    }

    /// The hub's own worker as this runtime, while it is the agent's active one.
    pub(crate) async fn check_here(&self, tenant: TenantId, runtime: RuntimeId) -> Result<Principal> {
        let found = self.store().runtime(tenant, runtime).await.map_err(about("runtime"))?;
        if found.kind != RuntimeKind::Hub {
            return Err(unknown());
        }
        if found.state != RuntimeState::Active {
            return Err(Error::runtime_ended(found.state));
        }
        let account = self.store().account(tenant, AgentRef::Id(found.agent)).await;
        let account = account.map_err(about("agent"))?;
        let who = PrincipalKind::Runtime { runtime, agent: found.agent, kind: found.kind };
        let proof = PresentedCredential::Here { tenant, runtime };
        Ok(Principal {
            tenant,
            who,
            user: account.owner,
            owner_role: None,
            user_role: None,
            scopes: None,
            ends_at: None,
            is_issued: false,
            proof,
        })
    }

    /// The agent that works on the run, while the token's claim lasts.
    async fn check_run(&self, tenant: TenantId, run: RunId, epoch: i64, expires_at: Timestamp) -> Result<Principal> {
        let record = match self.store().run(tenant, run).await {
            Ok(record) => record,
            Err(attache_store::Error::NotFound) => return Err(unknown()),
            Err(error) => return Err(Error::from_store("run", error)),
        };
        let lasts = matches!(record.state.phase, RunPhase::Running(_)) && record.state.epoch == epoch;
        if !lasts || expires_at <= self.now() {
            return Err(Error::unauthenticated("This token was valid only while its run was in progress."));
        }
        let account = self.store().account(tenant, AgentRef::Id(record.agent)).await.map_err(about("agent"))?;
        let owner_role = match account.owner {
            Some(owner) => Some(self.store().user(tenant, UserRef::Id(owner)).await.map_err(about("user"))?.role),
            None => None,
        };
        let (who, proof) = (
            PrincipalKind::Run { run, agent: record.agent },
            PresentedCredential::Run { tenant, run, epoch, expires_at },
        );
        let ends_at = Some(expires_at);
        Ok(Principal {
            tenant,
            who,
            user: account.owner,
            owner_role,
            user_role: None,
            scopes: None,
            ends_at,
            is_issued: false,
            proof,
        })
    }

    /// A credential that never expires (a password, an agent's key, a device's token, a code for either) can't be
    /// created with a token or key that does, nor in a session opened with such a key.
    pub(crate) async fn check_endless(&self, by: &Principal) -> Result<()> {
        self.check_lasting(by, "create a credential that doesn't expire").await
    }

    /// What a credential sets up may not outlast it. `tried` says what, as in "A token can't …".
    pub(crate) async fn check_lasting(&self, by: &Principal, tried: &str) -> Result<()> {
        by.lasting(tried)?;
        match self.backing_key(by).await? {
            Some((_, Some(_))) => Err(Error::new(Code::Forbidden, format!("A key that expires can't {tried}."))
                .hint("Use a key without an expiry, or sign in to the console with a password.")),
            Some((_, None)) | None => Ok(()),
        }
    }

    /// The API key behind a person's credential, and when it expires: the key itself, or the one that opened the session.
    /// `None` for a session opened with a password.
    pub(crate) async fn backing_key(&self, by: &Principal) -> Result<Option<(KeyId, Option<Timestamp>)>> {
        let mut next = by.key();
        while let Some(key) = next {
            next = match self.credential(CredentialLookup::Key(key)).await? {
                StoredCredential::Key { kind: KeyKind::Session, opener, .. } => opener,
                StoredCredential::Key { kind: KeyKind::Api, expires_at, .. } => return Ok(Some((key, expires_at))),
                StoredCredential::Runtime { .. } => None,
            };
        }
        Ok(None)
    }

    pub(crate) async fn credential(&self, by: CredentialLookup) -> Result<StoredCredential> {
        if let Some(credential) = self.credentials().get(by) {
            return Ok(credential);
        }
        let asked_at = Instant::now();
        let found = match by {
            CredentialLookup::Secret(secret) => self.store().credential(secret).await,
            CredentialLookup::Key(key) => self.store().key_credential(key).await,
        };
        let credential = found.map_err(|error| Error::from_store("credential", error))?.ok_or_else(unknown)?;
        self.credentials().put(by, credential.clone(), asked_at);
        Ok(credential)
    }
}

/// The key's current rights, limited by the token's.
fn lesser(key: (Role, Option<Vec<KeyScope>>), token: (Role, Option<&[KeyScope]>)) -> (Role, Option<Vec<KeyScope>>) {
    let scopes = match (key.1, token.1) {
        (scopes, None) => scopes,
        (None, Some(said)) => Some(said.to_vec()),
        (Some(scopes), Some(said)) => Some(scopes.into_iter().filter(|scope| said.contains(scope)).collect()),
    };
    (key.0.min(token.0), scopes)
}

fn unknown() -> Error {
    Error::unauthenticated("The credential is unknown.")
}
