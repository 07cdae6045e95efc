//! Memory that clients without credentials can take, measured in a process that contains the server alone.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

// The allocator of these tests is that of the mutated inputs (`fuzz/mutate.rs`).
use stats_alloc::INSTRUMENTED_SYSTEM;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    super::limiter::MAX_CONNECTIONS,
    http2::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, get, header},
    waiting,
    world::Client,
};

/// One less than the limit, beside a connection for a probe.
const CONNECTIONS: usize = MAX_CONNECTIONS - 1;
const STREAMS: u32 = 10;
const KIB: usize = 1024;

/// Process with a server.
struct Server {
    process: Child,
    address: SocketAddr,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Memory without clients.
    base: usize,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::tests::memory::process", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let address = read_value(&mut output, "address=").parse().unwrap();
        let mut server = Self { process, address, input, output, base: 0 };
        server.base = server.allocated();
        server
    }

    fn allocated(&mut self) -> usize {
        writeln!(self.input).unwrap();
        read_value(&mut self.output, "allocated=").parse().unwrap()
    }

    /// Memory of the clients, when the server has processed what they sent. The clients' task continues meanwhile.
    async fn memory(&mut self) -> usize {
        let (mut most, mut equal) = (0, 0);
        while equal < 200 {
            tokio::task::yield_now().await;
            let allocated = self.allocated();
            equal = if allocated > most { 0 } else { equal + 1 };
            most = most.max(allocated);
        }
        most - self.base
    }

    /// Opens a connection and sends `bytes` over HTTP/2.
    async fn send(&self, bytes: &[u8]) -> impl Sized + use<> {
        let mut stream = Client::default().connect(self.address, "localhost").await.unwrap();
        let settings = frame(SETTINGS, 0, 0, &[]);
        stream.write_all(&[PREFACE, &settings, bytes].concat()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read_value(output: &mut impl BufRead, name: &str) -> String {
    let mut line = String::new();
    while output.read_line(&mut line).unwrap() > 0 {
        if let Some((_, value)) = line.split_once(name) {
            return value.trim().to_owned();
        }
        line.clear();
    }
    panic!("the process of the server ended");
}

#[tokio::test]
#[ignore = "run by the other tests as a process of its own"]
async fn process() {
    let world = waiting::world().await;
    println!("address={}", world.address);
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {
        let stats = INSTRUMENTED_SYSTEM.stats();
        println!("allocated={}", stats.bytes_allocated - stats.bytes_deallocated);
    }
}

/// Fields that take much memory for their size.
fn many_fields() -> Vec<u8> {
    (0..400).flat_map(|at| header(&format!("x{at}"), "")).collect()
}

/// Request that waits for a review, which all of them share.
fn waiting_request(stream: u32, flags: u8, fields: &[u8]) -> Vec<u8> {
    let token = header("authorization", "Bearer slow");
    frame(HEADERS, flags, stream, &[&get("/metrics"), &token[..], fields].concat())
}

fn per_connection(memory: usize) -> usize {
    memory / CONNECTIONS / KIB
}

#[tokio::test]
async fn connections() {
    let mut server = Server::start();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(server.send(&[]).await);
    }
    let idle = per_connection(server.memory().await);
    drop(clients);

    // The start of a handshake message that does not end.
    let mut server = Server::start();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let record = |content: &[u8]| {
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            [&[22, 3, 1], &length[..], content].concat()
        };
        stream.write_all(&record(&[&[1, 0, 0xf0, 0], &[0; 15_000][..]].concat())).await.unwrap();
        stream.write_all(&record(&[0; 15_000])).await.unwrap();
        clients.push(stream);
    }
    let handshake = per_connection(server.memory().await);
    drop(clients);

    // The most that a connection takes beside the memory that its requests reserve: a body that is not read, a full table of
    // fields, and fields without an end.
    let mut server = Server::start();
    let mut clients = Vec::new();
    let table: Vec<u8> = (0..90)
        .flat_map(|at| [vec![0x40], header(&format!("t{at:09}"), "")[1..].to_vec()].concat())
        .collect();
    let body = [frame(DATA, 0, 1, &[0; 16 * KIB]).repeat(3), frame(DATA, 0, 1, &[0; 16 * KIB - 1])].concat();
    let bytes = [
        waiting_request(1, END_HEADERS, &table),
        body,
        frame(
            HEADERS,
            END_STREAM,
            3,
            &[get("/metrics"), many_fields(), vec![0, 1, b'x', 0x7f, 0xff, 0x7f]].concat(),
        ),
        frame(9, 0, 3, &[b'x'; 16 * KIB - 256]),
    ]
    .concat();
    for _ in 0..CONNECTIONS {
        clients.push(server.send(&bytes).await);
    }
    let full = per_connection(server.memory().await);
    println!("KiB per connection: idle {idle}, handshake {handshake}, full {full}");
    assert!(idle < 50 && handshake < 80 && full < 270, "{idle} {handshake} {full}");
}

#[tokio::test]
async fn waiting_requests() {
    // A field may refer to a buffer of the connection of which it is a small part.
    let filler = frame(0xff, 0, 0, &[0; 16 * KIB]);
    for (name, fields, filler) in
        [("many", many_fields(), &[][..]), ("none", Vec::new(), &[]), ("alone", header("x", "y"), &filler)]
    {
        let mut server = Server::start();
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(server.send(&[]).await);
        }
        let idle = server.memory().await;
        drop(clients);

        let mut server = Server::start();
        let mut clients = Vec::new();
        let mut requests = Vec::new();
        for stream in 0..STREAMS {
            requests.extend_from_slice(filler);
            requests.extend(waiting_request(2 * stream + 1, END_STREAM | END_HEADERS, &fields));
        }
        for _ in 0..CONNECTIONS {
            clients.push(server.send(&requests).await);
        }
        let memory = server.memory().await;
        println!("{name}: {} KiB, with {} KiB for idle connections", memory / KIB, idle / KIB);
        let stream = Client::default().connect(server.address, "localhost").await.unwrap();
        assert_eq!(Client::default().request(stream, "/healthz").await.body, "ok");
        assert!(memory - idle < 32 * KIB * KIB, "{name}: {memory} {idle}");
    }
}
