//! Connections: how one is made, and TLS around it.
//!
//! *Owns*: the way from an address to a connection, which a simulation or a test replaces. *May not
//! touch*: messages.

use std::fmt;
use std::future::Future;
use std::io;
#[cfg(feature = "tls")]
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tonic::client::Grpc;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server};

use crate::wire::MESSAGE_BYTES_MAX;

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Makes a connection.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// How nodes and clients reach a node.
#[derive(Clone)]
pub struct Transport {
    connect: Arc<dyn Fn(String) -> Connecting + Send + Sync>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// Both ends of TLS: what a node shows, and whom it and a client believe.
#[cfg(feature = "tls")]
#[derive(Debug, Clone)]
pub struct Tls {
    /// For connections that come; clients have no use for it.
    pub server: tonic::transport::ServerTlsConfig,
    /// For connections that go.
    pub client: tonic::transport::ClientTlsConfig,
}

#[cfg(feature = "tls")]
impl Tls {
    /// Of files in PEM: who may sign, and one's own certificate with its key. A node that has the
    /// last two asks for a certificate of everybody who connects, signed by the first: nobody else
    /// gets in.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn of_files(ca: &Path, own: Option<(&Path, &Path)>) -> io::Result<Self> {
        use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))
        };
        let ca = Certificate::from_pem(read(ca)?);
        let client = ClientTlsConfig::new().ca_certificate(ca.clone());
        let Some((certificate, key)) = own else {
            return Ok(Self { server: ServerTlsConfig::new(), client });
        };
        let identity = Identity::from_pem(read(certificate)?, read(key)?);
        let server = ServerTlsConfig::new().identity(identity.clone()).client_ca_root(ca);
        Ok(Self { server, client: client.identity(identity) })
    }
}

impl Transport {
    /// By TCP.
    pub fn tcp() -> Self {
        Self::new(|address| {
            Box::pin(async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            })
        })
    }

    /// By any means: `connect` gets an address as it stands in the membership, and makes a
    /// connection to it.
    pub fn new(connect: impl Fn(String) -> Connecting + Send + Sync + 'static) -> Self {
        Self {
            connect: Arc::new(connect),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The same, with TLS around each connection.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// A connection to `address`, ready for calls.
    ///
    /// # Errors
    /// When there is none within `timeout`: no call was sent then.
    pub(crate) async fn call(&self, address: &str, timeout: Duration) -> io::Result<Grpc<Channel>> {
        let endpoint = self.endpoint(address)?.connect_timeout(timeout);
        let (connect, to) = (Arc::clone(&self.connect), address.to_owned());
        let connector = tower::service_fn(move |_| {
            let connecting = connect(to.clone());
            async move { connecting.await.map(TokioIo::new) }
        });
        let channel =
            tokio::time::timeout(timeout, endpoint.connect_with_connector(connector)).await;
        let channel = match channel {
            Ok(Ok(channel)) => channel,
            Ok(Err(why)) => {
                return Err(io::Error::other(format!("{address}: {}", innermost(&why))));
            }
            Err(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{address}: no connection within {timeout:?}"),
                ));
            }
        };
        let limit = MESSAGE_BYTES_MAX;
        Ok(Grpc::new(channel).max_decoding_message_size(limit).max_encoding_message_size(limit))
    }

    /// A server without its service.
    pub(crate) fn server(&self) -> io::Result<Server> {
        // A client whose machine is gone is noticed by this.
        let server = Server::builder().http2_keepalive_interval(Some(Duration::from_secs(10)));
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return server.tls_config(tls.server.clone()).map_err(|why| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {}", innermost(&why)))
            });
        }
        Ok(server)
    }

    fn endpoint(&self, address: &str) -> io::Result<Endpoint> {
        let scheme = "http";
        #[cfg(feature = "tls")]
        let scheme = if self.tls.is_some() { "https" } else { scheme };
        let invalid = |why: &dyn fmt::Display| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{address} is no address of the form HOST:PORT: {why}"),
            )
        };
        let endpoint =
            Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|why| invalid(&why))?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return endpoint
                .tls_config(tls.client.clone())
                .map_err(|why| invalid(&innermost(&why)));
        }
        Ok(endpoint)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

/// What began an error: tonic wraps it in "transport error".
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Accepted<S>(pub(crate) S);

impl<S> Connected for Accepted<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin> AsyncRead for Accepted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Accepted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Listens at `address` (`HOST:PORT`), and gives out what is accepted. An error of accepting, such
/// as too many open files, passes: it waits a moment and goes on.
///
/// # Errors
/// When the address is in use, or none of this machine's.
pub async fn listen(
    address: &str,
) -> io::Result<impl futures_util::Stream<Item = io::Result<TcpStream>> + use<>> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|why| io::Error::new(why.kind(), format!("cannot listen on {address}: {why}")))?;
    Ok(futures_util::stream::unfold(listener, async |listener| {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    return Some((stream.set_nodelay(true).map(|()| stream), listener));
                }
                Err(why) => {
                    eprintln!("a connection was not accepted: {why}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }))
}
