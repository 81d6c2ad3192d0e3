//! Messages are read in any letter case and written in one.

use std::fmt::Debug;

use ginnel_api::EndpointOptions;
use ginnel_mux::protocol::message::Auth;
use ginnel_mux::protocol::message::AuthAnswer;
use ginnel_mux::protocol::message::Bind;
use ginnel_mux::protocol::message::BindAnswer;
use ginnel_mux::protocol::message::BindOpts;
use ginnel_mux::protocol::message::BindPlace;
use ginnel_mux::protocol::message::Hidden;
use ginnel_mux::protocol::message::RemoteError;
use ginnel_mux::protocol::message::StopTunnel;
use ginnel_mux::protocol::message::decode_message;
use ginnel_mux::protocol::message::error_text;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    decode_message(value.to_string().as_bytes()).unwrap()
}

#[test]
fn names_are_read_in_any_case() {
    let families = [
        json!({"Version": ["3", "2"], "ClientId": "c", "Extra": {"AuthToken": "t", "OS": "linux"}}),
        json!({"version": ["3", "2"], "CLIENTID": "c", "extra": {"Authtoken": "t", "Os": "linux"}}),
    ];

    let read = families.map(read::<Auth>);

    assert_eq!(read[0], read[1]);
    assert_eq!(read[0].extra.auth_token.reveal(), "t");
    assert_eq!(read[0].extra.os, "linux");
}

#[test]
fn the_exact_name_wins_over_another_spelling() {
    for text in [r#"{"ID": "other", "Id": "exact"}"#, r#"{"Id": "exact", "ID": "other"}"#] {
        assert_eq!(decode_message::<StopTunnel>(text.as_bytes()).unwrap().id, "exact");
    }
}

#[test]
fn null_and_absent_are_one_and_the_unknown_is_passed_over() {
    let bind: Bind = read(json!({
        "Id": null, "Proto": "http", "Opts": null, "Surprise": {"a": [1]},
        "Extra": {"Metadata": null, "Bindings": null, "PoolingEnabled": true}
    }));

    assert_eq!(bind.id, "");
    assert!(bind.extra.pooling_enabled);
    assert_eq!(bind.opts, BindOpts::default());
}

#[test]
fn commands_tell_unsupported_from_unknown() {
    let auth: Auth = read(json!({"Extra": {
        "StopUnsupportedError": "", "RestartUnsupportedError": "no", "UpdateUnsupportedError": null
    }}));

    assert_eq!(auth.extra.stop_unsupported_error.as_deref(), Some(""));
    assert_eq!(auth.extra.restart_unsupported_error.as_deref(), Some("no"));
    assert_eq!(auth.extra.update_unsupported_error, None);
}

#[test]
fn options_are_typed_whatever_the_case_of_their_names() {
    let bind: Bind = read(json!({"Proto": "https", "Opts": {
        "Hostname": "a.example", "LocalURLScheme": "https", "iprestriction": {"allow_cidrs": ["::/0"]},
        "BasicAuth": {"credentials": [{"username": "u", "cleartext_password": "p"}]},
        "ProxyProto": 2, "OAuth": null, "RequestHeaders": {"add": ["a:b"], "addParsed": {}},
        "TrafficPolicy": "on_http_request: []"
    }}));

    let place = bind.opts.place("https").unwrap();
    let options = bind.opts.endpoint("https").unwrap();

    assert_eq!((place.hostname.as_str(), place.proxy_proto), ("a.example", 2));
    assert_eq!(options.ip_restriction.unwrap().allow_cidrs, Some(vec!["::/0".to_owned()]));
    assert_eq!(options.basic_auth.unwrap().credentials[0].username, "u");
    assert_eq!(options.oauth, None);
    let added = options.request_headers.unwrap().add.unwrap();
    assert_eq!(added.0, [("a".to_owned(), "b".to_owned())]);
    assert_eq!(options.traffic_policy.unwrap().value.as_deref(), Some("on_http_request: []"));
}

#[test]
fn an_answer_echoes_the_options_and_has_what_clients_need() {
    let mut opts = read::<BindOpts>(json!({"HOSTNAME": "", "Mystery": {"kept": null}}));

    opts.set("Hostname", "chosen.example");
    opts.fill_defaults("http");

    assert_eq!(
        serde_json::to_value(&opts).unwrap(),
        json!({
            "Mystery": {"kept": null}, "Hostname": "chosen.example", "Auth": "", "Subdomain": "",
            "HostHeaderRewrite": false, "ProxyProto": 0
        })
    );
}

#[test]
fn typed_options_come_back_from_their_object() {
    let hostname = "a.example".to_owned();
    let place = BindPlace { hostname, mutual_tls_at_agent: true, ..BindPlace::default() };
    let tls_termination = Some(Default::default());
    let options = EndpointOptions { tls_termination, ..EndpointOptions::default() };

    let object = BindOpts::of_endpoint("tls", &place, &options);

    assert_eq!(object.get("MutualTLSAtAgent"), Some(&Value::Bool(true)));
    assert_eq!(object.get("TLSTermination"), Some(&json!({})));
    assert_eq!(object.place("tls").unwrap(), place);
    assert_eq!(object.endpoint("tls").unwrap(), options);
}

#[test]
fn answers_are_spelled_as_the_protocol_says() {
    let mut auth = AuthAnswer { version: "3".into(), client_id: "c".into(), ..Default::default() };
    auth.extra.agent_session_id = "ts_1".into();
    let bind = BindAnswer { url: "tcp://h:1".into(), ..Default::default() };

    let auth = serde_json::to_value(&auth).unwrap();
    let bind = serde_json::to_value(&bind).unwrap();

    assert_eq!((&auth["Version"], &auth["ClientId"]), (&json!("3"), &json!("c")));
    assert_eq!(auth["Extra"]["AgentSessionID"], "ts_1");
    assert_eq!(bind["URL"], "tcp://h:1");
    assert_eq!(bind["Extra"], json!({"Token": ""}));
    assert_eq!(bind.get("Error"), None);
}

#[test]
fn errors_are_lines_and_a_code() {
    let text =
        error_text("authentication failed: no such token\nlook again", Some("ERR_NGROK_107"));
    let answer: AuthAnswer = read(json!({"Error": text}));

    let failure = answer.failure().unwrap();

    assert_eq!(failure.message, "authentication failed: no such token\nlook again");
    assert_eq!(failure.code.as_deref(), Some("ERR_NGROK_107"));
    assert_eq!(RemoteError::parse("plain"), RemoteError { message: "plain".into(), code: None });
    assert_eq!(read::<AuthAnswer>(json!({"Error": ""})).failure(), None);
}

#[test]
fn secrets_are_not_printed() {
    fn assert_hidden<T: Debug + Serialize + DeserializeOwned>(message: Value) {
        let secrets = message.to_string().matches("s3cret").count();
        let read: T = read(message);

        let (sent, printed) = (serde_json::to_string(&read).unwrap(), format!("{read:?}"));

        assert_eq!(sent.matches("s3cret").count(), secrets, "it is read and sent: {sent}");
        assert!(!printed.contains("s3cret"), "{printed}");
        assert!(printed.contains("plain"), "what is no secret is printed: {printed}");
    }

    assert_hidden::<Auth>(json!({"ClientId": "plain", "Extra": {
        "Authtoken": "s3cret", "Cookie": "s3cret",
    }}));
    assert_hidden::<AuthAnswer>(json!({"ClientId": "plain", "Extra": {"Cookie": "s3cret"}}));
    assert_hidden::<Bind>(json!({
        "Id": "plain", "Extra": {"Token": "s3cret"}, "Opts": {"Auth": "s3cret"},
    }));
    assert_hidden::<BindAnswer>(json!({
        "URL": "plain", "Extra": {"Token": "s3cret"}, "Opts": {"Auth": "s3cret"},
    }));
    assert_eq!(Hidden::from("x").reveal(), "x");
}

#[test]
fn of_several_faults_the_first_field_of_the_struct_is_named() {
    let orders = [r#"{"Id": 7, "Proto": true}"#, r#"{"Proto": true, "Id": 7}"#];

    let problems =
        orders.map(|text| decode_message::<Bind>(text.as_bytes()).unwrap_err().to_string());

    assert_eq!(problems[0], problems[1]);
    assert!(problems[0].contains('7'), "{}", problems[0]);
}

#[test]
fn what_is_no_message_is_refused() {
    for text in
        ["", "{", "[]", "7", r#"{"Version": 3}"#, r#"{"Extra": {"HeartbeatInterval": "1"}}"#]
    {
        assert!(decode_message::<Auth>(text.as_bytes()).is_err(), "{text}");
    }
}
