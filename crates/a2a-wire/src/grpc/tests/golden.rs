//! Bytes written by the Python SDKs of 1.0 (1.3.0) and 0.3 (0.3.26), and their meaning.

use prost::Message as _;

use super::super::{v1, v03};
use crate as model;

const SEND: &str = concat!(
    "0a0374656e12bd010a026d31120263311a02743120012a160a0268692a100a0e0a016e12091100000000000045402a25120200ff320578",
    "2e62696e3a186170706c69636174696f6e2f6f637465742d73747265616d2a0d1a0b68747470733a2f2f782f792a42222e2a2c0a2a0a01",
    "61122532230a0911000000000000f03f0a091100000000000004400a0208000a0220010a031a01733a106170706c69636174696f6e2f6a",
    "736f6e320a0a080a016b12031a01763a0b68747470733a2f2f652f31420274301a360a0a746578742f706c61696e122412027031220b68",
    "747470733a2f2f682f6b2a03746f6b320c0a064265617265721202637218032001220e0a0c0a05747261636512031a0174",
);

const TASK: &str = concat!(
    "0a770a027431120263311a1d0806120c0a026d3220022a040a02796f1a0b089890e1c80610c09fab03222e0a02613112016e1a01642203",
    "0a01782a100a0e0a017a120911000000000000e03f320b68747470733a2f2f652f322a0c0a026d3220022a040a02796f32100a0e0a0167",
    "1209110000000000001c40",
);

const ARTIFACT: &str = "22290a027431120263311a090a02613122030a01782001280132100a0e0a01671209110000000000002040";

const LIST: &str = "0a0374656e120263311808200a2a03746f6b30003a0b089890e1c80610c09fab034001";

const LIST_PUSH: &str = "0a02743110051a03746f6b220374656e";

const CARD: &str = concat!(
    "0a014e1201441a1e0a0968747470733a2f2f7812074a534f4e5250431a0374656e2203312e30220e0a0968747470733a2f2f6f12014f2a",
    "0131320968747470733a2f2f643a2e080110001a260a0968747470733a2f2f65120165180122140a120a0171120d320b0a091100000000",
    "0000f03f200142120a0161120d0a0b12066865616465721a015842140a0168120f120d12066265617265721a034a575442130a0169120e",
    "220c120a68747470733a2f2f6f69420c0a016d12072a050a03746c7342350a016f12301a2e12212a1f0a0a68747470733a2f2f64611209",
    "68747470733a2f2f7422060a01731201641a0968747470733a2f2f6d4a0a0a080a016f12030a0173520a746578742f706c61696e5a0a74",
    "6578742f706c61696e62220a01731201531a0273642201742a01653201693a016f420a0a080a016112030a01786a140a01701201731a0c",
    "0a0a0a036b696412031a016b720968747470733a2f2f69",
);

const OLD_SEND: &str = concat!(
    "0a9f010a026d31120263311a02743120012a160a02686922100a0e0a016e12091100000000000045402a1b1219120461476b3d1a0a7465",
    "78742f706c61696e2205782e7478742a0f120d0a0b68747470733a2f2f782f792a301a2e0a2c0a2a0a0161122532230a09110000000000",
    "00f03f0a091100000000000004400a0208000a0220010a031a0173320a0a080a016b12031a01763a0b68747470733a2f2f652f3112360a",
    "0a746578742f706c61696e12240a027031120b68747470733a2f2f682f6b1a03746f6b220c0a0642656172657212026372180320011a0e",
    "0a0c0a05747261636512031a0174",
);

const OLD_TASK: &str = concat!(
    "0a6a0a027431120263311a100805120c0a026d3220022a040a02796f222e0a0261311a016e2201642a030a017832100a0e0a017a120911",
    "000000000000e03f3a0b68747470733a2f2f652f322a0c0a026d3220022a040a02796f32100a0e0a01671209110000000000001c40",
);

const OLD_STATUS: &str = "1a200a027431120263311a02080320012a100a0e0a01671209110000000000002040";

const OLD_CREATE: &str = concat!(
    "0a087461736b732f7431120270311a4b0a237461736b732f74312f707573684e6f74696669636174696f6e436f6e666967732f70311224",
    "0a027031120b68747470733a2f2f682f6b1a03746f6b220c0a0642656172657212026372",
);

const OLD_LIST: &str = concat!(
    "0a4b0a237461736b732f74312f707573684e6f74696669636174696f6e436f6e666967732f703112240a027031120b68747470733a2f2f",
    "682f6b1a03746f6b220c0a0642656172657212026372",
);

const OLD_CARD: &str = concat!(
    "0a014e1201441a0968747470733a2f2f78220e0a0968747470733a2f2f6f12014f2a01313a1108011a0d0a0968747470733a2f2f651801",
    "42120a0161120d0a0b12066865616465721a015842140a0168120f120d12066265617265721a034a575442070a016d12022a00422a0a01",
    "6f12251a2312210a1f0a0a68747470733a2f2f6175120968747470733a2f2f7422060a01731201644a0a0a080a016812030a01784a0a0a",
    "080a016f12030a0173520a746578742f706c61696e5a0a746578742f706c61696e620d0a01731201531a027364220174680172074a534f",
    "4e5250437a140a0968747470733a2f2f7812074a534f4e5250437a0b0a03783a31120447525043820105302e332e30",
);

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Parses the bytes, shows them as JSON, and writes them again.
macro_rules! golden {
    ($hex:ident: $message:ty => $model:ty, $json:expr) => {{
        let message = <$message>::decode(bytes($hex).as_slice()).unwrap();
        let read = <$model>::try_from(message.clone()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), $json);
        let again = <$message>::try_from(read).unwrap();
        assert_eq!(again, message);
        assert_eq!(again.encode_to_vec(), bytes($hex));
    }};
}

#[test]
fn a_1_0_request_round_trips_byte_for_byte() {
    golden!(SEND: v1::SendMessageRequest => model::SendMessage, concat!(
        r#"{"tenant":"ten","message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi","metadata":{"n":42}},"#,
        r#"{"raw":"AP8=","filename":"x.bin","mediaType":"application/octet-stream"},{"url":"https://x/y"},"#,
        r#"{"data":{"a":[1,2.5,null,true,"s"]},"mediaType":"application/json"}],"contextId":"c1","taskId":"t1","#,
        r#""metadata":{"k":"v"},"extensions":["https://e/1"],"referenceTaskIds":["t0"]},"#,
        r#""configuration":{"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":{"id":"p1","#,
        r#""url":"https://h/k","token":"tok","authentication":{"scheme":"Bearer","credentials":"cr"}},"#,
        r#""historyLength":3,"returnImmediately":true},"metadata":{"trace":"t"}}"#
    ));
    golden!(LIST: v1::ListTasksRequest => model::ListTasks, concat!(
        r#"{"tenant":"ten","contextId":"c1","status":"TASK_STATE_AUTH_REQUIRED","pageSize":10,"pageToken":"tok","#,
        r#""historyLength":0,"statusTimestampAfter":"2025-11-15T09:30:00.007Z","includeArtifacts":true}"#
    ));
    golden!(LIST_PUSH: v1::ListTaskPushNotificationConfigsRequest => model::ListPushConfigs,
        r#"{"tenant":"ten","taskId":"t1","pageSize":5,"pageToken":"tok"}"#);
}

#[test]
fn a_1_0_event_round_trips_byte_for_byte() {
    golden!(TASK: v1::StreamResponse => model::StreamResponse, concat!(
        r#"{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_INPUT_REQUIRED","#,
        r#""message":{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"yo"}]},"#,
        r#""timestamp":"2025-11-15T09:30:00.007Z"},"artifacts":[{"artifactId":"a1","name":"n","description":"d","#,
        r#""parts":[{"text":"x"}],"metadata":{"z":0.5},"extensions":["https://e/2"]}],"#,
        r#""history":[{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"yo"}]}],"metadata":{"g":7}}}"#
    ));
    golden!(ARTIFACT: v1::StreamResponse => model::StreamResponse, concat!(
        r#"{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a1","parts":[{"text":"x"}]},"#,
        r#""append":true,"lastChunk":true,"metadata":{"g":8}}}"#
    ));
}

#[test]
fn a_1_0_card_round_trips_byte_for_byte() {
    golden!(CARD: v1::AgentCard => model::AgentCard, concat!(
        r#"{"name":"N","description":"D","supportedInterfaces":[{"url":"https://x","protocolBinding":"JSONRPC","#,
        r#""tenant":"ten","protocolVersion":"1.0"}],"provider":{"url":"https://o","organization":"O"},"version":"1","#,
        r#""documentationUrl":"https://d","capabilities":{"streaming":true,"pushNotifications":false,"#,
        r#""extensions":[{"uri":"https://e","description":"e","required":true,"params":{"q":[1]}}],"#,
        r#""extendedAgentCard":true},"securitySchemes":{"#,
        r#""a":{"apiKeySecurityScheme":{"location":"header","name":"X"}},"#,
        r#""h":{"httpAuthSecurityScheme":{"scheme":"bearer","bearerFormat":"JWT"}},"#,
        r#""i":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://oi"}},"#,
        r#""m":{"mtlsSecurityScheme":{"description":"tls"}},"#,
        r#""o":{"oauth2SecurityScheme":{"flows":{"deviceCode":{"deviceAuthorizationUrl":"https://da","#,
        r#""tokenUrl":"https://t","scopes":{"s":"d"}}},"oauth2MetadataUrl":"https://m"}}},"#,
        r#""securityRequirements":[{"schemes":{"o":{"list":["s"]}}}],"defaultInputModes":["text/plain"],"#,
        r#""defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"sd","tags":["t"],"#,
        r#""examples":["e"],"inputModes":["i"],"outputModes":["o"],"securityRequirements":[{"schemes":{"a":{"list":["x"]}}}]}],"#,
        r#""signatures":[{"protected":"p","signature":"s","header":{"kid":"k"}}],"iconUrl":"https://i"}"#
    ));
}

#[test]
fn a_0_3_request_round_trips_byte_for_byte() {
    golden!(OLD_SEND: v03::SendMessageRequest => model::SendMessage, concat!(
        r#"{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi","metadata":{"n":42}},"#,
        r#"{"raw":"aGk=","filename":"x.txt","mediaType":"text/plain"},{"url":"https://x/y"},"#,
        r#"{"data":{"a":[1,2.5,null,true,"s"]}}],"contextId":"c1","taskId":"t1","#,
        r#""metadata":{"k":"v"},"extensions":["https://e/1"]},"#,
        r#""configuration":{"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":{"id":"p1","#,
        r#""url":"https://h/k","token":"tok","authentication":{"scheme":"Bearer","credentials":"cr"}},"#,
        r#""historyLength":3,"returnImmediately":false},"metadata":{"trace":"t"}}"#
    ));
    let config = concat!(
        r#"{"id":"p1","taskId":"t1","url":"https://h/k","token":"tok","#,
        r#""authentication":{"scheme":"Bearer","credentials":"cr"}}"#
    );
    golden!(OLD_CREATE: v03::CreateTaskPushNotificationConfigRequest => model::PushConfig, config);
    golden!(OLD_LIST: v03::ListTaskPushNotificationConfigResponse => model::PushConfigList,
        format!(r#"{{"configs":[{config}]}}"#));
}

#[test]
fn a_0_3_event_round_trips_byte_for_byte() {
    golden!(OLD_TASK: v03::SendMessageResponse => model::SendMessageResponse, concat!(
        r#"{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_CANCELED","#,
        r#""message":{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"yo"}]}},"#,
        r#""artifacts":[{"artifactId":"a1","name":"n","description":"d","#,
        r#""parts":[{"text":"x"}],"metadata":{"z":0.5},"extensions":["https://e/2"]}],"#,
        r#""history":[{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"yo"}]}],"metadata":{"g":7}}}"#
    ));
    golden!(OLD_STATUS: v03::StreamResponse => model::StreamResponse, concat!(
        r#"{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"#,
        r#""metadata":{"g":8}}}"#
    ));
}

#[test]
fn a_0_3_card_is_written_like_its_own_sdk_does() {
    let card: model::v03::AgentCardV03 = serde_json::from_str(concat!(
        r#"{"additionalInterfaces":[{"transport":"JSONRPC","url":"https://x"},{"transport":"GRPC","url":"x:1"}],"#,
        r#""capabilities":{"extensions":[{"required":true,"uri":"https://e"}],"pushNotifications":false,"#,
        r#""streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"#,
        r#""description":"D","name":"N","preferredTransport":"JSONRPC","protocolVersion":"0.3.0","#,
        r#""provider":{"organization":"O","url":"https://o"},"security":[{"h":["x"]},{"o":["s"]}],"#,
        r#""securitySchemes":{"h":{"bearerFormat":"JWT","scheme":"bearer","type":"http"},"#,
        r#""a":{"in":"header","name":"X","type":"apiKey"},"o":{"flows":{"authorizationCode":"#,
        r#"{"authorizationUrl":"https://au","scopes":{"s":"d"},"tokenUrl":"https://t"}},"type":"oauth2"},"#,
        r#""m":{"type":"mutualTLS"}},"skills":[{"description":"sd","id":"s","name":"S","tags":["t"]}],"#,
        r#""supportsAuthenticatedExtendedCard":true,"url":"https://x","version":"1"}"#
    ))
    .unwrap();
    let written = v03::AgentCard::from(card);
    assert_eq!(written, v03::AgentCard::decode(bytes(OLD_CARD).as_slice()).unwrap());
    assert_eq!(written.encode_to_vec(), bytes(OLD_CARD));
}

#[test]
fn requests_with_only_ids_round_trip() {
    let get = model::GetTask { tenant: None, id: "t".to_owned(), history_length: Some(2) };
    assert_eq!(model::GetTask::from(v1::GetTaskRequest::from(get.clone())), get);
    assert_eq!(model::GetTask::try_from(v03::GetTaskRequest::from(get.clone())), Ok(get));
    let cancel = model::CancelTask { tenant: None, id: "t".to_owned(), metadata: None };
    let new = v1::CancelTaskRequest::from(cancel.clone());
    assert_eq!(model::CancelTask::try_from(new).as_ref(), Ok(&cancel));
    assert_eq!(model::CancelTask::try_from(v03::CancelTaskRequest::from(cancel.clone())), Ok(cancel));
    let subscribe = model::SubscribeToTask { tenant: None, id: "t".to_owned() };
    assert_eq!(model::SubscribeToTask::from(v1::SubscribeToTaskRequest::from(subscribe.clone())), subscribe);
    let old = v03::TaskSubscriptionRequest::from(subscribe.clone());
    assert_eq!(old.name, "tasks/t");
    assert_eq!(model::SubscribeToTask::try_from(old), Ok(subscribe));
    let push = model::GetPushConfig { tenant: None, task_id: "t".to_owned(), id: "c".to_owned() };
    assert_eq!(model::GetPushConfig::from(v1::GetTaskPushNotificationConfigRequest::from(push.clone())), push);
    assert_eq!(model::GetPushConfig::from(v1::DeleteTaskPushNotificationConfigRequest::from(push.clone())), push);
    let old = v03::GetTaskPushNotificationConfigRequest::from(push.clone());
    assert_eq!(old.name, "tasks/t/pushNotificationConfigs/c");
    assert_eq!(model::GetPushConfig::try_from(old).as_ref(), Ok(&push));
    let old = v03::DeleteTaskPushNotificationConfigRequest::from(push.clone());
    assert_eq!(model::GetPushConfig::try_from(old), Ok(push));
    let list = model::ListPushConfigs { task_id: "t".to_owned(), page_size: Some(3), ..Default::default() };
    assert_eq!(model::ListPushConfigs::from(v1::ListTaskPushNotificationConfigsRequest::from(list.clone())), list);
    let old = v03::ListTaskPushNotificationConfigRequest::from(list.clone());
    assert_eq!(model::ListPushConfigs::try_from(old), Ok(list));
    let card = model::GetExtendedCard { tenant: Some("ten".to_owned()) };
    assert_eq!(model::GetExtendedCard::from(v1::GetExtendedAgentCardRequest::from(card.clone())), card);
}
