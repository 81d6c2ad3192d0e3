//! What hyper reads from the same bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// How often a future is polled before it is taken for stuck.
const MAX_POLLS: usize = 1 << 20;

/// A body as hyper read it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Body {
    /// What came of it.
    pub data: Vec<u8>,
    /// The fields behind it.
    pub trailers: HeaderMap,
    /// Whether all of it came.
    pub is_complete: bool,
}

/// A request as hyper read it.
#[derive(Debug)]
pub struct RequestRead {
    /// The method.
    pub method: String,
    /// The head's fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// The requests that a server of hyper accepts on a connection.
pub fn requests(connection: impl AsyncRead + AsyncWrite + Unpin) -> Vec<RequestRead> {
    let requests = RefCell::new(Vec::new());
    let service = service_fn(|request: Request<Incoming>| async {
        let (head, body) = request.into_parts();
        let body = read_body(body).await;
        let method = head.method.to_string();
        requests.borrow_mut().push(RequestRead { method, headers: head.headers, body });
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let server = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(connection), service);
    // How the connection ends is in what was read.
    let _ = run(server);
    requests.into_inner()
}

/// The answer to a GET that a client of hyper accepts on a connection.
pub fn response(
    connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> hyper::Result<(u16, HeaderMap, Body)> {
    run(async {
        let io = TokioIo::new(connection);
        let (mut sender, driver) = hyper::client::conn::http1::handshake(io).await?;
        let exchange = async {
            let request = Request::get("/").header("host", "a").body(Empty::<Bytes>::new());
            let response = sender.send_request(request.unwrap()).await?;
            let (head, body) = response.into_parts();
            Ok((head.status.as_u16(), head.headers, read_body(body).await))
        };
        let (mut exchange, mut driver) = (pin!(exchange), pin!(driver));
        let mut is_over = false;
        poll_fn(|cx| {
            // A problem of the connection reaches the exchange, too.
            is_over = is_over || driver.as_mut().poll(cx).is_ready();
            exchange.as_mut().poll(cx)
        })
        .await
    })
}

async fn read_body(mut body: Incoming) -> Body {
    let mut read = Body::default();
    loop {
        match body.frame().await {
            Some(Ok(frame)) if frame.is_data() => {
                read.data.extend_from_slice(&frame.into_data().unwrap_or_default());
            }
            Some(Ok(frame)) => read.trailers = frame.into_trailers().unwrap_or_default(),
            Some(Err(_)) => return read,
            None => return Body { is_complete: true, ..read },
        }
    }
}

/// Runs what waits for nothing but itself.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..MAX_POLLS {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("hyper waits for something");
}
