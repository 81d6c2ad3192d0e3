//! Calls and proxied connections.

use std::time::Duration;

use ginnel_mux::Stream;
use ginnel_mux::protocol::message::Auth;
use ginnel_mux::protocol::message::AuthAnswer;
use ginnel_mux::protocol::message::Bind;
use ginnel_mux::protocol::message::CommandResponse;
use ginnel_mux::protocol::message::ProxyHeader;
use ginnel_mux::protocol::message::Stop;
use ginnel_mux::protocol::message::StopTunnel;
use ginnel_mux::protocol::message::error_text;
use ginnel_mux::protocol::proxy;
use ginnel_mux::protocol::read_kind;
use ginnel_mux::protocol::rpc;
use ginnel_mux::protocol::rpc::IncomingCall;
use ginnel_mux::protocol::stream_kind;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::mux::support::{PATIENCE, pair, soon};

async fn accept(mut stream: Stream) -> Result<IncomingCall, rpc::RpcError> {
    let kind = soon(read_kind(&mut stream)).await.unwrap();
    soon(IncomingCall::read_message(kind, stream)).await
}

#[tokio::test]
async fn a_call_gets_its_answer() {
    let mut pair = pair();
    let caller = pair.agent.clone();
    let asked = tokio::spawn(async move {
        let auth = Auth { version: vec!["3".into()], ..Auth::default() };
        rpc::call(&caller, &auth, PATIENCE).await
    });

    let call = accept(soon(pair.service_incoming.next()).await.unwrap()).await.unwrap();
    assert_eq!(call.kind(), stream_kind::AUTH);
    assert_eq!(call.decode_message::<Auth>().unwrap().version, ["3"]);
    let answer = AuthAnswer { client_id: "c1".into(), ..AuthAnswer::default() };
    call.send_response(&answer).await.unwrap();

    assert_eq!(soon(asked).await.unwrap().unwrap(), answer);
}

#[tokio::test]
async fn a_refused_call_is_an_answer_with_an_error() {
    let mut pair = pair();
    let caller = pair.agent.clone();
    let asked = tokio::spawn(async move { rpc::call(&caller, &Bind::default(), PATIENCE).await });

    let call = accept(soon(pair.service_incoming.next()).await.unwrap()).await.unwrap();
    call.send_error(error_text("no such host", Some("ERR_NGROK_1"))).await.unwrap();

    let failure = soon(asked).await.unwrap().unwrap().failure().unwrap();
    assert_eq!(failure.code.as_deref(), Some("ERR_NGROK_1"));
}

#[tokio::test]
async fn a_call_split_into_single_bytes_is_read_without_an_end() {
    let mut pair = pair();
    let mut stream = pair.agent.open_stream(Bytes::new()).await.unwrap();
    let message = b"\0\0\0\x01 \n{\"Id\": \"}\\\"{\", \"Opts\": {\"a\": [{}]}}\n  {\"next\": ";
    for byte in message {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }

    let call = accept(soon(pair.service_incoming.next()).await.unwrap()).await.unwrap();

    assert_eq!(call.decode_message::<Bind>().unwrap().id, "}\"{");
    call.send_response(&CommandResponse::default()).await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"{}");
}

#[tokio::test]
async fn a_call_without_an_object_is_refused() {
    let mut pair = pair();
    for (text, last) in [(&b"[1]"[..], false), (b"{\"Id\": ", true), (b"", true)] {
        let mut stream = pair.agent.open_stream(Bytes::from_static(&[0; 4])).await.unwrap();
        stream.write_all(text).await.unwrap();
        if last {
            stream.shutdown().await.unwrap();
        }

        let call = accept(soon(pair.service_incoming.next()).await.unwrap()).await;

        let error = call.err().unwrap();
        assert_eq!(matches!(error, rpc::RpcError::Cut), last, "{error}");
        assert_eq!(matches!(error, rpc::RpcError::NotAnObject(_)), !last, "{error}");
    }
}

#[tokio::test]
async fn a_call_of_more_than_a_mebibyte_is_refused() {
    let mut pair = pair();
    let mut stream =
        pair.agent.open_stream(Bytes::from_static(b"\0\0\0\x01{\"Id\": \"")).await.unwrap();
    tokio::spawn(async move { stream.write_all(&vec![b'x'; 2 << 20]).await });

    let call = accept(soon(pair.service_incoming.next()).await.unwrap()).await;

    assert!(matches!(call.err().unwrap(), rpc::RpcError::TooLong));
}

#[tokio::test]
async fn a_call_that_is_never_answered_is_reset() {
    let mut pair = pair();
    let limit = Duration::from_millis(20);

    let error = rpc::call(&pair.service, &Stop {}, limit).await.unwrap_err();

    assert!(matches!(error, rpc::RpcError::Late(_)), "{error}");
    assert_eq!(pair.service.open_streams(), 0);
    let mut stream = soon(pair.agent_incoming.next()).await.unwrap();
    let error = soon(stream.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_stopped_tunnel_is_told_without_an_answer() {
    let mut pair = pair();
    let message = StopTunnel { id: "b1".into(), message: "over".into(), error_code: None };

    rpc::send_notification(&pair.service, &message).await.unwrap();

    let call = accept(soon(pair.agent_incoming.next()).await.unwrap()).await.unwrap();
    assert_eq!(call.kind(), stream_kind::STOP_TUNNEL);
    assert_eq!(call.decode_message::<StopTunnel>().unwrap(), message);
}

#[tokio::test]
async fn a_proxied_connection_carries_its_header_and_then_bytes() {
    let mut pair = pair();
    let header = ProxyHeader {
        id: "b1".into(),
        client_addr: "[::1]:4040".into(),
        proto: "https".into(),
        edge_type: "0".into(),
        passthrough_tls: true,
        edge_id: "edghts_1".into(),
        route_id: "edghtsrt_2".into(),
    };

    let mut visitor = proxy::open_proxy(&pair.service, 1, None, &header).await.unwrap().unwrap();
    assert!(proxy::open_proxy(&pair.service, 1, None, &header).await.unwrap().is_none());
    visitor.send_last(b"GET").await.unwrap();

    let mut stream = soon(pair.agent_incoming.next()).await.unwrap();
    assert_eq!(soon(read_kind(&mut stream)).await.unwrap(), stream_kind::PROXY);
    assert_eq!(soon(proxy::read_header(&mut stream)).await.unwrap(), header);
    let mut rest = Vec::new();
    soon(stream.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"GET");
}

#[tokio::test]
async fn a_proxy_header_that_is_none_is_refused() {
    let mut pair = pair();
    let headers: [&[u8]; 3] =
        [b"\x02\0\0\0\0\0\0\0{}", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\x10"];
    for header in headers {
        let _visitor = pair.service.open_stream(Bytes::copy_from_slice(header)).await.unwrap();

        let mut stream = soon(pair.agent_incoming.next()).await.unwrap();

        let error = soon(proxy::read_header(&mut stream)).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    }
}
