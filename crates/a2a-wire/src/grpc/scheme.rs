//! Security schemes and other card messages that both versions share.

use super::{read_object, text, truth, v1, v03, write_object};
use crate::{
    AgentCardSignature, AgentExtension, AgentProvider, ApiKeyScheme, HttpAuthScheme, InvalidField, KnownScheme,
    MutualTlsScheme, OAuth2Scheme, OAuthFlow, OAuthFlows, OpenIdConnectScheme, SecurityRequirement, SecurityScheme,
    StringList,
};

/// Messages that differ only in their package.
macro_rules! shared {
    ($proto:ident, $requirement:ident) => {
        impl From<AgentProvider> for $proto::AgentProvider {
            fn from(provider: AgentProvider) -> Self {
                Self { url: provider.url, organization: provider.organization }
            }
        }

        impl From<AgentExtension> for $proto::AgentExtension {
            fn from(extension: AgentExtension) -> Self {
                Self {
                    uri: extension.uri,
                    description: extension.description.unwrap_or_default(),
                    required: extension.required.unwrap_or_default(),
                    params: write_object(extension.params),
                }
            }
        }

        impl TryFrom<$proto::AgentExtension> for AgentExtension {
            type Error = InvalidField;

            fn try_from(extension: $proto::AgentExtension) -> Result<Self, InvalidField> {
                Ok(Self {
                    uri: extension.uri,
                    description: text(extension.description),
                    required: truth(extension.required),
                    params: read_object("params", extension.params)?,
                })
            }
        }

        impl From<AgentCardSignature> for $proto::AgentCardSignature {
            fn from(signature: AgentCardSignature) -> Self {
                let AgentCardSignature { protected, signature, header } = signature;
                Self { protected, signature, header: write_object(header) }
            }
        }

        impl TryFrom<$proto::AgentCardSignature> for AgentCardSignature {
            type Error = InvalidField;

            fn try_from(signature: $proto::AgentCardSignature) -> Result<Self, InvalidField> {
                let $proto::AgentCardSignature { protected, signature, header } = signature;
                Ok(Self { protected, signature, header: read_object("header", header)? })
            }
        }

        impl From<SecurityRequirement> for $proto::$requirement {
            fn from(requirement: SecurityRequirement) -> Self {
                let list = |(name, StringList { list })| (name, $proto::StringList { list });
                Self { schemes: requirement.schemes.into_iter().map(list).collect() }
            }
        }

        impl From<$proto::$requirement> for SecurityRequirement {
            fn from(requirement: $proto::$requirement) -> Self {
                let list = |(name, $proto::StringList { list })| (name, StringList { list });
                Self { schemes: requirement.schemes.into_iter().map(list).collect() }
            }
        }

        impl From<KnownScheme> for $proto::SecurityScheme {
            fn from(scheme: KnownScheme) -> Self {
                use $proto::security_scheme::Scheme as S;
                let scheme = match scheme {
                    KnownScheme::ApiKey(ApiKeyScheme { description, location, name }) => {
                        let description = description.unwrap_or_default();
                        S::ApiKeySecurityScheme($proto::ApiKeySecurityScheme { description, location, name })
                    }
                    KnownScheme::HttpAuth(HttpAuthScheme { description, scheme, bearer_format }) => {
                        let (description, bearer_format) =
                            (description.unwrap_or_default(), bearer_format.unwrap_or_default());
                        S::HttpAuthSecurityScheme($proto::HttpAuthSecurityScheme { description, scheme, bearer_format })
                    }
                    KnownScheme::OAuth2(oauth2) => {
                        let OAuth2Scheme { description, flows, metadata_url } = *oauth2;
                        S::Oauth2SecurityScheme($proto::OAuth2SecurityScheme {
                            description: description.unwrap_or_default(),
                            flows: Some(flows.into()),
                            oauth2_metadata_url: metadata_url.unwrap_or_default(),
                        })
                    }
                    KnownScheme::OpenIdConnect(OpenIdConnectScheme { description, open_id_connect_url }) => {
                        let description = description.unwrap_or_default();
                        S::OpenIdConnectSecurityScheme($proto::OpenIdConnectSecurityScheme {
                            description,
                            open_id_connect_url,
                        })
                    }
                    KnownScheme::MutualTls(MutualTlsScheme { description }) => {
                        let description = description.unwrap_or_default();
                        S::MtlsSecurityScheme($proto::MutualTlsSecurityScheme { description })
                    }
                };
                Self { scheme: Some(scheme) }
            }
        }

        impl TryFrom<$proto::SecurityScheme> for SecurityScheme {
            type Error = InvalidField;

            fn try_from(scheme: $proto::SecurityScheme) -> Result<Self, InvalidField> {
                use $proto::security_scheme::Scheme as S;
                let scheme = match scheme.scheme {
                    Some(S::ApiKeySecurityScheme(given)) => KnownScheme::ApiKey(ApiKeyScheme {
                        description: text(given.description),
                        location: given.location,
                        name: given.name,
                    }),
                    Some(S::HttpAuthSecurityScheme(given)) => KnownScheme::HttpAuth(HttpAuthScheme {
                        description: text(given.description),
                        scheme: given.scheme,
                        bearer_format: text(given.bearer_format),
                    }),
                    Some(S::Oauth2SecurityScheme(given)) => KnownScheme::OAuth2(Box::new(OAuth2Scheme {
                        description: text(given.description),
                        flows: given.flows.map(Into::into).unwrap_or_default(),
                        metadata_url: text(given.oauth2_metadata_url),
                    })),
                    Some(S::OpenIdConnectSecurityScheme(given)) => KnownScheme::OpenIdConnect(OpenIdConnectScheme {
                        description: text(given.description),
                        open_id_connect_url: given.open_id_connect_url,
                    }),
                    Some(S::MtlsSecurityScheme(given)) => {
                        KnownScheme::MutualTls(MutualTlsScheme { description: text(given.description) })
                    }
                    None => return Err(InvalidField::itself("has an unknown kind")),
                };
                Ok(scheme.into())
            }
        }

        impl $proto::ClientCredentialsOAuthFlow {
            fn of(flow: OAuthFlow) -> Self {
                Self {
                    token_url: flow.token_url.unwrap_or_default(),
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                }
            }

            fn flow(self) -> OAuthFlow {
                OAuthFlow {
                    token_url: text(self.token_url),
                    refresh_url: text(self.refresh_url),
                    scopes: self.scopes,
                    ..OAuthFlow::default()
                }
            }
        }

        impl $proto::PasswordOAuthFlow {
            fn of(flow: OAuthFlow) -> Self {
                Self {
                    token_url: flow.token_url.unwrap_or_default(),
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                }
            }

            fn flow(self) -> OAuthFlow {
                OAuthFlow {
                    token_url: text(self.token_url),
                    refresh_url: text(self.refresh_url),
                    scopes: self.scopes,
                    ..OAuthFlow::default()
                }
            }
        }

        impl $proto::ImplicitOAuthFlow {
            fn of(flow: OAuthFlow) -> Self {
                Self {
                    authorization_url: flow.authorization_url.unwrap_or_default(),
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                }
            }

            fn flow(self) -> OAuthFlow {
                OAuthFlow {
                    authorization_url: text(self.authorization_url),
                    refresh_url: text(self.refresh_url),
                    scopes: self.scopes,
                    ..OAuthFlow::default()
                }
            }
        }
    };
}

shared!(v1, SecurityRequirement);
shared!(v03, Security);

// === impl AgentProvider ===

impl From<v1::AgentProvider> for AgentProvider {
    fn from(provider: v1::AgentProvider) -> Self {
        Self { url: provider.url, organization: provider.organization }
    }
}

// === impl OAuthFlows ===

/// gRPC has room for one flow: the first is used.
impl From<OAuthFlows> for v1::OAuthFlows {
    fn from(flows: OAuthFlows) -> Self {
        use v1::o_auth_flows::Flow;
        let authorization_code = |flow: OAuthFlow| {
            Flow::AuthorizationCode(v1::AuthorizationCodeOAuthFlow {
                authorization_url: flow.authorization_url.unwrap_or_default(),
                token_url: flow.token_url.unwrap_or_default(),
                refresh_url: flow.refresh_url.unwrap_or_default(),
                scopes: flow.scopes,
                pkce_required: flow.pkce_required.unwrap_or_default(),
            })
        };
        let device_code = |flow: OAuthFlow| {
            Flow::DeviceCode(v1::DeviceCodeOAuthFlow {
                device_authorization_url: flow.device_authorization_url.unwrap_or_default(),
                token_url: flow.token_url.unwrap_or_default(),
                refresh_url: flow.refresh_url.unwrap_or_default(),
                scopes: flow.scopes,
            })
        };
        let flow = flows
            .authorization_code
            .map(authorization_code)
            .or(flows.client_credentials.map(v1::ClientCredentialsOAuthFlow::of).map(Flow::ClientCredentials))
            .or(flows.device_code.map(device_code))
            .or(flows.implicit.map(v1::ImplicitOAuthFlow::of).map(Flow::Implicit))
            .or(flows.password.map(v1::PasswordOAuthFlow::of).map(Flow::Password));
        Self { flow }
    }
}

impl From<v1::OAuthFlows> for OAuthFlows {
    fn from(flows: v1::OAuthFlows) -> Self {
        use v1::o_auth_flows::Flow;
        let mut read = Self::default();
        match flows.flow {
            Some(Flow::AuthorizationCode(flow)) => {
                read.authorization_code = Some(OAuthFlow {
                    authorization_url: text(flow.authorization_url),
                    device_authorization_url: None,
                    token_url: text(flow.token_url),
                    refresh_url: text(flow.refresh_url),
                    scopes: flow.scopes,
                    pkce_required: truth(flow.pkce_required),
                });
            }
            Some(Flow::DeviceCode(flow)) => {
                read.device_code = Some(OAuthFlow {
                    device_authorization_url: text(flow.device_authorization_url),
                    token_url: text(flow.token_url),
                    refresh_url: text(flow.refresh_url),
                    scopes: flow.scopes,
                    ..OAuthFlow::default()
                });
            }
            Some(Flow::ClientCredentials(flow)) => read.client_credentials = Some(flow.flow()),
            Some(Flow::Implicit(flow)) => read.implicit = Some(flow.flow()),
            Some(Flow::Password(flow)) => read.password = Some(flow.flow()),
            None => {}
        }
        read
    }
}

/// 0.3 has no device flow.
impl From<OAuthFlows> for v03::OAuthFlows {
    fn from(flows: OAuthFlows) -> Self {
        use v03::o_auth_flows::Flow;
        let authorization_code = |flow: OAuthFlow| {
            Flow::AuthorizationCode(v03::AuthorizationCodeOAuthFlow {
                authorization_url: flow.authorization_url.unwrap_or_default(),
                token_url: flow.token_url.unwrap_or_default(),
                refresh_url: flow.refresh_url.unwrap_or_default(),
                scopes: flow.scopes,
            })
        };
        let flow = flows
            .authorization_code
            .map(authorization_code)
            .or(flows.client_credentials.map(v03::ClientCredentialsOAuthFlow::of).map(Flow::ClientCredentials))
            .or(flows.implicit.map(v03::ImplicitOAuthFlow::of).map(Flow::Implicit))
            .or(flows.password.map(v03::PasswordOAuthFlow::of).map(Flow::Password));
        Self { flow }
    }
}

impl From<v03::OAuthFlows> for OAuthFlows {
    fn from(flows: v03::OAuthFlows) -> Self {
        use v03::o_auth_flows::Flow;
        let mut read = Self::default();
        match flows.flow {
            Some(Flow::AuthorizationCode(flow)) => {
                read.authorization_code = Some(OAuthFlow {
                    authorization_url: text(flow.authorization_url),
                    token_url: text(flow.token_url),
                    refresh_url: text(flow.refresh_url),
                    scopes: flow.scopes,
                    ..OAuthFlow::default()
                });
            }
            Some(Flow::ClientCredentials(flow)) => read.client_credentials = Some(flow.flow()),
            Some(Flow::Implicit(flow)) => read.implicit = Some(flow.flow()),
            Some(Flow::Password(flow)) => read.password = Some(flow.flow()),
            None => {}
        }
        read
    }
}
