//! Messages that announce a lot and never end.

use futures_util::{StreamExt as _, future::select_all};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _, protocol::frame::coding::CloseCode},
};

use super::peer::{WS, owner_key};
use crate::{
    people::person,
    world::{PATIENCE, World},
};

const MASK: [u8; 4] = [0; 4];

async fn socket(world: &World, key: &str) -> WebSocketStream<TcpStream> {
    let mut request = format!("ws://{}{WS}", world.address).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    client_async(request, TcpStream::connect(world.address).await.unwrap()).await.unwrap().0
}

/// The head of a text message of this length, and so many bytes of it.
async fn begin(socket: &mut WebSocketStream<TcpStream>, length: u64, sent: usize) {
    let mut bytes = vec![0x81, 0xff];
    bytes.extend(length.to_be_bytes());
    bytes.extend(MASK);
    bytes.resize(bytes.len() + sent, b'x');
    // The hub may close the connection before everything is written.
    let _ = socket.get_mut().write_all(&bytes).await;
}

async fn closed(socket: &mut WebSocketStream<TcpStream>) -> Option<CloseCode> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_is_refused_by_what_it_announces() {
    let world = World::start().await;
    let mut peer = socket(&world, &owner_key(&world)).await;
    begin(&mut peer, 4 << 20, 0).await;
    let code = timeout(PATIENCE, closed(&mut peer)).await.expect("nothing more is waited for");
    assert_eq!(code, Some(CloseCode::Size));
}

#[tokio::test]
async fn incomplete_messages_of_a_caller_share_a_limit() {
    const LENGTH: usize = 1 << 20;
    let world = World::start().await;
    let bob = person(&world, "bob", "operator").await;
    let key = bob.header("authorization").trim_start_matches("Bearer ").to_owned();
    let mut first = socket(&world, &key).await;
    begin(&mut first, LENGTH as u64, LENGTH - 1).await;
    let mut others = Vec::new();
    for _ in 0..24 {
        let mut peer = socket(&world, &key).await;
        begin(&mut peer, LENGTH as u64, LENGTH - 1).await;
        others.push(peer);
    }
    let ends = others.iter_mut().map(|peer| Box::pin(closed(peer)));
    let ended = timeout(PATIENCE, select_all(ends)).await.expect("the last ones are too many").0;
    assert!(matches!(ended, None | Some(CloseCode::Again)), "{ended:?}");
    // Those within the limit go on, and so does everybody else.
    first.get_mut().write_all(b"x").await.unwrap();
    let reply = timeout(PATIENCE, first.next()).await.expect("a reply").unwrap().unwrap();
    assert!(reply.to_text().unwrap().contains("invalid_json"), "{reply}");
    let mut owner = socket(&world, &owner_key(&world)).await;
    begin(&mut owner, LENGTH as u64, LENGTH).await;
    assert!(timeout(PATIENCE, owner.next()).await.expect("a reply").unwrap().unwrap().is_text());
    // What is gone no longer counts.
    drop(others);
    for _ in 0..20 {
        let mut peer = socket(&world, &key).await;
        begin(&mut peer, LENGTH as u64, LENGTH).await;
        assert!(timeout(PATIENCE, peer.next()).await.expect("a reply").unwrap().unwrap().is_text());
    }
}
