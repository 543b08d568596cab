//! A container's log as it grows.

use std::io::SeekFrom;
use std::path::PathBuf;
use std::time::Duration;

use futures::Stream;
use hyper::body::{Bytes, Frame};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// How often the file is looked at while someone follows it.
const PERIOD: Duration = Duration::from_millis(250);

/// A log that is being followed.
pub struct Following<F> {
    /// Its file.
    pub file: PathBuf,
    /// What is sent before anything new.
    pub first: Vec<u8>,
    /// How much of the file is read.
    pub offset: u64,
    /// Whether more can come.
    pub goes_on: F,
}

impl<F: Fn() -> bool + Send + Sync> Following<F> {
    /// The log in pieces; it ends once nothing more can come.
    pub fn stream(self) -> impl Stream<Item = std::io::Result<Frame<Bytes>>> + Send {
        futures::stream::unfold(self, async |mut this| {
            let piece = this.next().await?;
            Some((Ok(Frame::data(Bytes::from(piece))), this))
        })
    }

    async fn next(&mut self) -> Option<Vec<u8>> {
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first));
        }
        loop {
            // Asked before reading: what was said last is not lost.
            let goes_on = (self.goes_on)();
            let new = self.read().await.unwrap_or_default();
            if !new.is_empty() {
                self.offset += new.len() as u64;
                return Some(new);
            }
            if !goes_on {
                return None;
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn read(&self) -> std::io::Result<Vec<u8>> {
        let mut file = tokio::fs::File::open(&self.file).await?;
        file.seek(SeekFrom::Start(self.offset)).await?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Following;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn what_is_appended_is_sent_until_nothing_more_can_come() {
        let file = std::env::temp_dir().join(format!("follow-{}", std::process::id()));
        std::fs::write(&file, "one\ntwo\n").unwrap();
        let asked = AtomicU32::new(0);
        let mut following = Following {
            file: file.clone(),
            first: b"one\n".to_vec(),
            offset: 4,
            goes_on: || asked.fetch_add(1, Ordering::Relaxed) < 1,
        };
        assert_eq!(following.next().await.unwrap(), b"one\n");
        assert_eq!(following.next().await.unwrap(), b"two\n");
        assert_eq!(following.next().await, None);
        std::fs::remove_file(&file).unwrap();
    }
}
