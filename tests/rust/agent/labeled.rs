//! Tunnels with labels: what comes through HTTPS edges is requests, what comes through TCP and TLS edges
//! is bytes, whose TLS may end at the agent.

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::support::{PATIENCE, Whole};
use super::tls::{Identity, visit};
use crate::service::support::{Folder, free_address};

/// A local service that sends back what it gets.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

/// A backend of all tunnels with `app=it`.
async fn group(whole: &Whole) -> Value {
    let made = whole.create("/backends/tunnel_group", json!({"labels": {"app": "it"}})).await;
    json!({"backend_id": made["id"]})
}

/// A TCP edge in front of the tunnels; its address.
async fn tcp_edge(whole: &Whole) -> String {
    let free = free_address().to_string();
    let edge = json!({"hostports": [free], "backend": group(whole).await});
    whole.create("/edges/tcp", edge).await;
    free
}

/// Starts a tunnel with labels.
async fn start(whole: &Whole, more: Value) {
    let mut definition = json!({"name": "it", "labels": ["app=it"]});
    definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (status, tunnel) = whole.start_tunnel(definition).await;
    assert_eq!(status, 201, "{tunnel}");
}

#[tokio::test]
async fn a_tcp_edge_carries_any_bytes() {
    bytes_pass(json!({})).await;
}

#[tokio::test]
async fn a_tcp_edge_carries_any_bytes_where_requests_go_by_http2() {
    bytes_pass(json!({"app_protocol": "http2"})).await;
}

async fn bytes_pass(mut more: Value) {
    let whole = Whole::start().await;
    more["addr"] = echo().await.into();
    start(&whole, more).await;
    let mut visitor = TcpStream::connect(tcp_edge(&whole).await).await.unwrap();

    visitor.write_all(b"SSH-2.0-x\r\n\0\x01\xff").await.unwrap();

    let mut heard = [0; 14];
    timeout(PATIENCE, visitor.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"SSH-2.0-x\r\n\0\x01\xff");
    assert_eq!(whole.get("/api/requests/http").await["requests"], json!([]));
}

#[tokio::test]
async fn tls_of_a_tcp_edge_ends_at_the_agent_that_has_a_certificate() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let [crt, key] = &own.files;
    start(&whole, json!({"crt": crt, "key": key})).await;
    let address = tcp_edge(&whole).await;

    let visit = visit(&address, &own.certificate, None, true);
    let answer = timeout(PATIENCE, visit).await.unwrap().unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
}

/// A TLS edge for `shop.test` in front of the tunnels; its identifier.
async fn tls_edge(whole: &Whole) -> String {
    let edge = json!({"hostports": ["shop.test:443"], "backend": group(whole).await});
    whole.create("/edges/tls", edge).await["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tls_of_a_tls_edge_ends_at_the_agent_unless_it_has_ended_at_the_edge() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let [crt, key] = &own.files;
    start(&whole, json!({"crt": crt, "key": key})).await;
    let edge = tls_edge(&whole).await;
    let edges = whole.service.gateway();
    let place = edges.https_address().unwrap().to_string();
    let ask = async |trusted: &str| {
        let visit = visit(&place, trusted, None, true);
        timeout(PATIENCE, visit).await.unwrap().unwrap_or_else(|problem| problem.to_string())
    };

    let answer = ask(&own.certificate).await;
    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");

    let module = format!("/edges/tls/{edge}/tls_termination");
    whole.replace(&module, json!({"terminate_at": "edge"})).await;
    let answer = ask(edges.authority().pem()).await;
    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
    assert_eq!(whole.get("/api/requests/http").await["requests"], json!([]), "they were bytes");
}

#[tokio::test]
async fn tls_goes_through_a_tls_edge_and_an_agent_to_a_server() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let [crt, key] = &own.files;
    // The agent of the first service is the TLS server of the second.
    let server = Whole::start().await;
    start(&server, json!({"crt": crt, "key": key})).await;
    start(&whole, json!({"addr": tcp_edge(&server).await})).await;
    tls_edge(&whole).await;
    let place = whole.service.gateway().https_address().unwrap().to_string();

    let visit = visit(&place, &own.certificate, None, true);
    let answer = timeout(PATIENCE, visit).await.unwrap().unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
}

#[tokio::test]
async fn requests_of_an_https_edge_have_no_tls_to_end() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let [crt, key] = &own.files;
    start(&whole, json!({"crt": crt, "key": key})).await;
    let edge = whole.create("/edges/https", json!({"hostports": ["shop.test:443"]})).await;
    let route = json!({"match_type": "path_prefix", "match": "/", "backend": group(&whole).await});
    let routes = format!("/edges/https/{}/routes", edge["id"].as_str().unwrap());
    whole.create(&routes, route).await;
    let edges = whole.service.gateway();
    let place = edges.https_address().unwrap().to_string();

    let visit = visit(&place, edges.authority().pem(), None, true);
    let answer = timeout(PATIENCE, visit).await.unwrap().unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
    let captured = whole.get("/api/requests/http").await;
    assert_eq!(captured["requests"][0]["request"]["uri"], "/secret");
}

#[tokio::test]
async fn records_tell_the_route_although_connections_to_the_agent_are_kept() {
    let whole = Whole::start().await;
    start(&whole, json!({})).await;
    let hostports = json!({"hostports": ["shop.test:443"]});
    let edge = whole.create("/edges/https", hostports).await["id"].clone();
    let routes = format!("/edges/https/{}/routes", edge.as_str().unwrap());
    let mut expected = Vec::new();
    for path in ["/a", "/b"] {
        let route =
            json!({"match_type": "path_prefix", "match": path, "backend": group(&whole).await});
        expected.push(whole.create(&routes, route).await["id"].clone());
    }
    let edges = whole.service.gateway();
    let certificate = reqwest::Certificate::from_pem(edges.authority().pem().as_bytes()).unwrap();
    let visitor = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([certificate])
        .resolve("shop.test", edges.https_address().unwrap())
        .build()
        .unwrap();

    for path in ["/a", "/b", "/a"] {
        let url = format!("https://shop.test{path}");
        assert_eq!(visitor.get(url).send().await.unwrap().status(), 200);
    }

    let captured = whole.get("/api/requests/http").await;
    let mut told = Vec::new();
    for request in captured["requests"].as_array().unwrap().iter().rev() {
        let path = format!("/inspect/data/requests/{}", request["id"].as_str().unwrap());
        let detail = whole.get(&path).await;
        assert_eq!((&detail["edge_id"], &detail["via"]), (&edge, &json!("https_edge")));
        told.push(detail["route_id"].clone());
    }
    assert_eq!(told, [&expected[0], &expected[1], &expected[0]].map(Clone::clone));
}

#[tokio::test]
async fn a_certificate_needs_its_key_and_tls_to_end() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let [crt, key] = &own.files;

    for (more, told) in [
        (json!({"crt": crt}), "crt: a certificate and its key belong together"),
        (json!({"key": key}), "crt: a certificate and its key belong together"),
        (json!({"crt": key, "key": key}), "crt: "),
        (json!({"crt": crt, "key": key, "terminate_at": "edge"}), "terminate_at: does not belong"),
        (json!({"mutual_tls_cas": crt}), "mutual_tls_cas: does not belong"),
    ] {
        let mut definition = json!({"name": "it", "labels": ["app=it"]});
        definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = whole.start_tunnel(definition).await;

        assert_eq!(status, 400, "{answer}");
        assert!(answer["details"]["err"].as_str().unwrap().contains(told), "{answer}");
    }
}
