//! DNS server for the name of the API server.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{net::UdpSocket, task::JoinSet};

use crate::error::{SuiteError, failed};

/// Type of an IPv4 address.
const A: [u8; 2] = [0, 1];
/// Length of the header of a message.
const HEADER: usize = 12;

/// Running server. It answers all names with 127.0.0.1 unless it is silent.
#[derive(Debug)]
pub(crate) struct DnsServer {
    address: Ipv4Addr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    silent: AtomicBool,
    unanswered: AtomicU64,
}

impl DnsServer {
    /// Starts the server on port 53 of a loopback address that no other server uses.
    pub(crate) async fn start() -> Result<Self, SuiteError> {
        let (socket, address) = bind().await.map_err(failed("DNS server"))?;
        let state = Arc::new(State::default());
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut query = [0; 512];
            loop {
                let Ok((length, client)) = socket.recv_from(&mut query).await else { continue };
                if shared.silent.load(Ordering::SeqCst) {
                    shared.unanswered.fetch_add(1, Ordering::SeqCst);
                } else if let Some(answer) = answer(&query[..length]) {
                    let _ = socket.send_to(&answer, client).await;
                }
            }
        });
        Ok(Self { address, state, _tasks: tasks })
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        self.state.silent.store(silent, Ordering::SeqCst);
    }

    /// Number of queries that were not answered.
    pub(crate) fn unanswered(&self) -> u64 {
        self.state.unanswered.load(Ordering::SeqCst)
    }
}

/// Opens port 53 of the first free address of a loopback network.
async fn bind() -> io::Result<(UdpSocket, Ipv4Addr)> {
    let mut last = 0;
    loop {
        last += 1;
        let address = Ipv4Addr::new(127, 53, 0, last);
        match UdpSocket::bind(SocketAddr::from((address, 53))).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && last < u8::MAX => {}
            bound => return Ok((bound?, address)),
        }
    }
}

/// Answers the first question of a query. Types other than A have no records.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let mut end = HEADER;
    while *query.get(end)? != 0 {
        end += usize::from(query[end]) + 1;
    }
    let question = query.get(HEADER..end + 5)?;
    let is_address = query.get(end + 1..end + 3)? == A;
    let mut answer = query.get(..2)?.to_vec();
    // Response, recursion desired and available; one question, and one answer if it is of type A.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        // Pointer to the name, type A, class IN, a TTL of zero, and the address.
        answer.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_questions_of_addresses_have_records() {
        let query = |kind: u8| {
            let mut query =
                vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'x', 4, b't', b'e', b's', b't', 0, 0];
            query.extend([kind, 0, 1]);
            query
        };
        let found = answer(&query(1)).unwrap();
        assert_eq!((&found[..2], found[7], &found[found.len() - 4..]), (&[7, 9][..], 1, &[127, 0, 0, 1][..]));
        assert_eq!(answer(&query(28)).unwrap()[7], 0);
        assert_eq!(answer(&query(1)[..15]), None);
    }
}
