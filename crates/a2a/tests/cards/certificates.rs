//! Certificates of clients as credentials: a key is made for one, and whoever holds its private key is that key.

use attache_hub::{Certificate, ClientCertificates, Options, Tls};
use attache_protocol::{
    Code,
    env::Env,
    wire::key::{CreateKeyRequest, Role},
};
use attache_testkit::RunningWorld;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use reqwest::{Client, ClientBuilder, Identity, tls::Version};
use serde_json::json;

use super::{CardAnswer, agent, bearer, world};

const ME: &str = "/api/v1/users/me";

fn asking(options: &mut Options) {
    let certificate = Certificate::SelfSigned { names: vec!["127.0.0.1".to_owned()] };
    let tls = Tls::open_for(&options.data, certificate, ClientCertificates::Asked, &Env::system()).unwrap();
    options.tls = Some(tls);
}

fn certificate() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec!["robot".to_owned()]).unwrap()
}

fn builder() -> ClientBuilder {
    // Whom the client believes is tested elsewhere.
    Client::builder().tls_danger_accept_invalid_certs(true)
}

fn holding(held: &CertifiedKey<KeyPair>) -> ClientBuilder {
    let pem = format!("{}{}", held.cert.pem(), held.signing_key.serialize_pem());
    builder().identity(Identity::from_pem(pem.as_bytes()).unwrap())
}

fn key_for(held: &CertifiedKey<KeyPair>) -> CreateKeyRequest {
    CreateKeyRequest {
        name: "robot".to_owned(),
        role: Some(Role::Viewer),
        certificate: Some(held.cert.pem()),
        ..CreateKeyRequest::default()
    }
}

async fn get(world: &RunningWorld, client: &Client, path: &str, authorization: Option<&str>) -> CardAnswer {
    let mut request = client.get(format!("https://{}{path}", world.address));
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    CardAnswer::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn whoever_holds_the_certificate_is_the_key_that_was_made_for_it() {
    for world in [world(), world().on_sqlite()] {
        let world = world.tuned(asking).start().await;
        let (known, unknown) = (certificate(), certificate());
        let made = world.hub.create_key(&world.owner, key_for(&known)).await.unwrap();
        assert_eq!(made.api_key, None, "there is no secret to show");

        let versions = [(Version::TLS_1_2, "/api/v1/agent-accounts"), (Version::TLS_1_3, "/api/v1/agent-accounts")];
        for (version, path) in versions {
            for builder in [holding(&known), holding(&known).http1_only()] {
                let client = builder.tls_version_min(version).tls_version_max(version).build().unwrap();
                for _ in 0..2 {
                    get(&world, &client, path, None).await.expect(200);
                }
                let refused = client.post(format!("https://{}{path}", world.address)).body(r#"{"name":"x"}"#);
                let refused = CardAnswer::of(refused.send().await.unwrap()).await;
                assert_eq!(
                    refused.expect(403)["error"]["code"],
                    "forbidden",
                    "a viewer's certificate is a viewer's key"
                );
            }
        }

        let client = holding(&known).build().unwrap();
        assert_eq!(get(&world, &client, ME, None).await.expect(200)["name"], "owner");
        let wrong = get(&world, &client, ME, Some("Bearer ak_wrong")).await;
        assert_eq!(wrong.expect(401)["error"]["message"], "The credential is unknown.");
        let owner = bearer(&world);
        let made_by_owner = client.post(format!("https://{}/api/v1/agent-accounts", world.address));
        let made_by_owner = made_by_owner.header("authorization", &owner).body(r#"{"name":"x"}"#).send().await.unwrap();
        assert_eq!(made_by_owner.status(), 201, "the header wins");

        let stranger = holding(&unknown).build().unwrap();
        let refused = get(&world, &stranger, ME, None).await;
        assert_eq!(refused.expect(401)["error"]["message"], "No key exists for this connection's certificate.");
        get(&world, &stranger, "/.well-known/ai-catalog.json", None).await.expect(200);
        get(&world, &stranger, ME, Some(&owner)).await.expect(200);
        let bare = builder().build().unwrap();
        assert_eq!(
            get(&world, &bare, ME, None).await.expect(401)["error"]["message"],
            "The request has no credential."
        );

        world.hub.revoke_key(&world.owner, made.key.key_id).await.unwrap();
        let revoked = get(&world, &client, ME, None).await;
        assert_eq!(revoked.expect(401)["error"]["message"], "This key was revoked.");
        let again = world.hub.create_key(&world.owner, key_for(&known)).await.unwrap_err();
        assert_eq!(again.message, "`certificate` is or was used by another key.");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_fingerprint_alone_opens_nothing() {
    let world = world().tuned(asking).start().await;
    let known = certificate();
    world.hub.create_key(&world.owner, key_for(&known)).await.unwrap();
    let print = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, known.cert.der());
    let print: String = print.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let bare = builder().build().unwrap();
    for text in
        [format!("certificate:{print}"), print.clone(), format!("ak_{print}"), known.cert.pem().replace('\n', "")]
    {
        let refused = get(&world, &bare, ME, Some(&format!("Bearer {text}"))).await;
        assert_eq!(refused.status, 401, "{text}");
    }
    // The certificate is public; without its private key the handshake fails.
    let other = certificate();
    let pem = format!("{}{}", known.cert.pem(), other.signing_key.serialize_pem());
    let built = builder().identity(Identity::from_pem(pem.as_bytes()).unwrap()).build();
    let refused = match built {
        Ok(client) => client.get(format!("https://{}{ME}", world.address)).send().await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "a stolen certificate is worth nothing");
    world.stop().await;
}

#[tokio::test]
async fn a_key_for_a_certificate_needs_one_and_a_hub_that_asks() {
    let asks = world().tuned(asking).start().await;
    let junk = CreateKeyRequest { certificate: Some("-----BEGIN".to_owned()), ..key_for(&certificate()) };
    let refused = asks.hub.create_key(&asks.owner, junk).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_ref()),
        (Code::InvalidRequest, "`certificate` is not a PEM certificate.")
    );
    asks.stop().await;
    let plain = world().start().await;
    let refused = plain.hub.create_key(&plain.owner, key_for(&certificate())).await.unwrap_err();
    assert_eq!(refused.message, "`certificate` has no effect: this hub does not request client certificates.");
    plain.stop().await;
}

#[tokio::test]
async fn the_card_says_that_certificates_count() {
    let world = world().tuned(asking).start().await;
    agent(&world, "echo", json!({})).await;
    let client = builder().build().unwrap();
    let card = get(&world, &client, "/a2a/echo/.well-known/agent-card.json?A2A-Version=1.0", None).await.expect(200);
    assert_eq!(
        card["securitySchemes"]["mtls"],
        json!({"mtlsSecurityScheme": {"description": "A client certificate that is bound to an API key of the hub."}})
    );
    assert_eq!(
        card["securityRequirements"],
        json!([{"schemes": {"bearer": {"list": ["call"]}}}, {"schemes": {"mtls": {"list": ["call"]}}}])
    );
    assert_eq!(card["supportedInterfaces"][0]["url"], format!("https://{}/a2a/echo", world.address));
    world.stop().await;
}
