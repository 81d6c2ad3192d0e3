//! Copies of the database for callers of the management API: made as backups are, then streamed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use ginnel_base::files;
use ginnel_store::{Overwrite, Store, StoreError, StoreResult};

use crate::accounts::Caller;
use crate::{Refusal, Result, code};

/// How much of a copy is read at once, in bytes.
const CHUNK_BYTES: u64 = 256 << 10;
/// How long the caller may take nothing of a copy.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes copies for callers, one at a time.
pub(crate) struct BackupDownloads {
    database: Option<PathBuf>,
    free: Arc<Semaphore>,
}

/// A verified copy that has no name any more: it is gone when it was sent.
pub(crate) struct Download {
    file: File,
    bytes: u64,
    _permit: OwnedSemaphorePermit,
}

impl BackupDownloads {
    /// Copies are written beside the database; those of one in memory where temporary files are.
    pub(crate) fn for_database(database: Option<&Path>) -> Self {
        Self { database: database.map(Path::to_owned), free: Arc::new(Semaphore::new(1)) }
    }

    /// Makes a copy of the database as it is now.
    ///
    /// # Errors
    /// When the caller is no admin, another copy is under way, or there is no verified copy.
    pub(crate) async fn start_download(
        &self,
        store: Arc<Store>,
        caller: &Caller,
    ) -> Result<Download> {
        if !caller.admin {
            let message = "only an admin may back up the database";
            return Err(Refusal::new(code::BACKUP_NEEDS_ADMIN, message));
        }
        let permit = self.free.clone().try_acquire_owned().map_err(|_| {
            let message = "another copy of the database is under way";
            Refusal::new(code::BACKUP_UNDER_WAY, message)
        })?;
        let path = self.download_path();
        // The permit goes along: the copy goes on when the caller has gone.
        let copying =
            ginnel_base::tasks::spawn_blocking(move || copy_database(&store, &path, permit));
        match copying.await.unwrap_or(Err(StoreError::Panicked)) {
            Err(StoreError::NoFile) => {
                let message = "this service keeps its data on PostgreSQL: back it up with pg_dump";
                Err(Refusal::new(code::BACKUP_ELSEWHERE, message))
            }
            copied => Ok(copied?),
        }
    }

    fn download_path(&self) -> PathBuf {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        match &self.database {
            Some(database) => files::with_suffix(database, "-download"),
            None => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let name = format!("ginnel-{}-{number}-download", std::process::id());
                std::env::temp_dir().join(name)
            }
        }
    }
}

fn copy_database(
    store: &Store,
    path: &Path,
    permit: OwnedSemaphorePermit,
) -> StoreResult<Download> {
    let report = store.back_up(path, Overwrite::Yes)?;
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    let opened = File::open(path);
    // Without its name it takes no space beyond its transfer, however that ends.
    std::fs::remove_file(path).map_err(failed)?;
    Ok(Download { file: opened.map_err(failed)?, bytes: report.bytes, _permit: permit })
}

impl Download {
    /// The copy as the body of a response.
    pub(crate) fn into_body(self) -> Body {
        let (sender, chunks) = mpsc::channel(1);
        let left = self.bytes;
        ginnel_base::tasks::spawn(async move {
            let bytes = self.bytes;
            match self.send_chunks(sender).await {
                Ok(()) => tracing::info!(bytes, "a copy of the database was sent"),
                Err(error) => tracing::warn!("a copy of the database was not sent: {error}"),
            }
        });
        Body::new(DownloadBody { chunks, left })
    }

    async fn send_chunks(mut self, sender: mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
        while self.bytes > 0 {
            let read = ginnel_base::tasks::spawn_blocking(move || {
                let chunk = self.read_chunk();
                (self, chunk)
            });
            let (download, chunk) = read.await.map_err(io::Error::other)?;
            self = download;
            let room = tokio::time::timeout(STALL_TIMEOUT, sender.reserve()).await;
            let room = room.map_err(|_| io::Error::other("the caller takes nothing"))?;
            let room = room.map_err(|_| io::Error::other("the connection has ended"))?;
            match chunk {
                Ok(chunk) => room.send(Ok(chunk)),
                Err(error) => {
                    let failed = io::Error::new(error.kind(), "the copy cannot be read");
                    room.send(Err(failed));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn read_chunk(&mut self) -> io::Result<Bytes> {
        let mut chunk = Vec::new();
        let count = (&self.file).take(CHUNK_BYTES.min(self.bytes)).read_to_end(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes = self.bytes.saturating_sub(count as u64);
        Ok(chunk.into())
    }
}

/// The chunks of a copy as they are read.
struct DownloadBody {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    left: u64,
}

impl HttpBody for DownloadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = std::task::ready!(self.chunks.poll_recv(context));
        if let Some(Ok(chunk)) = &chunk {
            self.left = self.left.saturating_sub(chunk.len() as u64);
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
