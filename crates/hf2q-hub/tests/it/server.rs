//! A server for tests: one request a connection, answers from a closure.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    /// How many requests for the same target came before.
    pub(crate) earlier: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The first byte of a `Range`.
    pub(crate) fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What is sent back.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Close the connection after this many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Then say nothing until the server is dropped.
    pub(crate) stall: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None, stall: false }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn cut(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }

    pub(crate) fn stall(mut self, bytes: usize) -> Self {
        (self.cut, self.stall) = (Some(bytes), true);
        self
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// Serves until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let over: Arc<AtomicBool> = Arc::default();
        let handler: Arc<Handler> = Arc::new(handler);
        let thread = std::thread::spawn({
            let (requests, over) = (Arc::clone(&requests), Arc::clone(&over));
            move || {
                let mut connections = Vec::new();
                for stream in listener.incoming() {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    let (requests, over, handler) =
                        (Arc::clone(&requests), Arc::clone(&over), Arc::clone(&handler));
                    let stream = stream.unwrap();
                    connections.push(std::thread::spawn(move || serve(stream, &requests, &over, &*handler)));
                }
                for connection in connections {
                    connection.join().unwrap();
                }
            }
        });
        Self { address, requests, over, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests so far, in the order of their arrival.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Those whose target ends so.
    pub(crate) fn requests_for(&self, end: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|r| r.target.ends_with(end)).collect()
    }

    pub(crate) fn forget(&self) {
        self.requests.lock().unwrap().clear();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut stream: TcpStream, requests: &Mutex<Vec<Request>>, over: &AtomicBool, handler: &Handler) {
    let Some(mut request) = read(&stream) else { return };
    {
        let mut requests = requests.lock().unwrap();
        let same = |r: &&Request| r.target == request.target && r.method == request.method;
        request.earlier = requests.iter().filter(same).count();
        requests.push(request.clone());
    }
    let reply = handler(&request);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    if !reply.headers.iter().any(|(name, _)| name == "content-length" || name == "transfer-encoding") {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let body = &reply.body[..reply.cut.unwrap_or(reply.body.len()).min(reply.body.len())];
    let body = if request.method == "HEAD" { &[][..] } else { body };
    // The client may be gone already, which some tests want.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
    while reply.stall && !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    // Waits for the client to close, so that what was sent is not thrown away.
    let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
    let _ = stream.read(&mut [0; 16]);
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    Some(Request { method, target, headers, earlier: 0 })
}
