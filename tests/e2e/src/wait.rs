//! Waiting until something holds, with a reason when it does not.

use std::future::Future;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(250);

/// Asks until the answer is `Ok(Some(_))`. When `limit` has passed, the error carries the last
/// complaint: an `Err`, or that it was not so yet.
pub async fn until<T, F, R>(what: &str, limit: Duration, mut ask: F) -> anyhow::Result<T>
where
    F: FnMut() -> R,
    R: Future<Output = anyhow::Result<Option<T>>>,
{
    let started = Instant::now();
    loop {
        let complaint = match tokio::time::timeout(Duration::from_secs(20), ask()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => "not so yet".to_owned(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "no answer within 20 s".to_owned(),
        };
        if started.elapsed() > limit {
            anyhow::bail!("{what}: not within {} s: {complaint}", limit.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
