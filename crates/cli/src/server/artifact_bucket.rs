//! Where a hub has its artifacts, if not in its data folder: a bucket, its keys, and whether it answers; or a folder.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use attache_client::bucket::{Bucket, BucketAddress, BucketError};
use attache_hub::ArtifactBucket;
use tokio::time::timeout;

use crate::{
    env::context::CommandContext,
    ui::{failure::CommandFailure, output::TextStyle},
};

/// How long a start waits for a bucket that doesn't answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
const SCHEME: &str = "s3://";
const KEYS_HINT: &str = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION if it isn't us-east-1.";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Artifacts")]
pub(crate) struct ArtifactArgs {
    /// Keep artifacts in this bucket of an S3-compatible object store (s3://BUCKET or s3://BUCKET/PREFIX) instead of the
    /// data folder. Keys and region come from the AWS_… variables
    #[arg(long, value_name = "URL")]
    artifacts: Option<String>,
    /// Keep artifacts in this folder instead of the data folder; hubs that share a database need a folder they can all
    /// reach
    #[arg(long, value_name = "DIR", conflicts_with = "artifacts")]
    artifacts_folder: Option<PathBuf>,
    /// Address of the object store [default: AWS_ENDPOINT_URL, or Amazon's for the region]
    #[arg(long, value_name = "URL", requires = "artifacts")]
    artifacts_endpoint: Option<String>,
    /// Certificates (PEM) to trust for the object store, besides those of this machine
    #[arg(long, value_name = "FILE", requires = "artifacts")]
    artifacts_ca: Option<PathBuf>,
    /// Maximum disk space for local copies of artifacts in the bucket [default: 10737418240]
    #[arg(long, value_name = "BYTES", requires = "artifacts", default_value_t = 10 << 30, hide_default_value = true)]
    artifacts_cache_bytes: u64,
}

// === impl ArtifactArgs ===

impl ArtifactArgs {
    /// `None` if artifacts are in the data folder.
    pub(crate) fn folder(&self) -> Result<Option<PathBuf>, CommandFailure> {
        let Some(folder) = &self.artifacts_folder else { return Ok(None) };
        std::path::absolute(folder).map(Some).map_err(|error| CommandFailure::file("use", folder, &error))
    }

    /// `None` if artifacts are in the data folder. A bucket that refuses is an error; one that can't be reached may be back soon.
    pub(crate) async fn open(self, context: &CommandContext) -> Result<Option<ArtifactBucket>, CommandFailure> {
        let Some(url) = &self.artifacts else { return Ok(None) };
        let certificates = match &self.artifacts_ca {
            Some(file) => Some(fs::read(file).map_err(|error| CommandFailure::file("read", file, &error))?),
            None => None,
        };
        let address = address(url, self.artifacts_endpoint, context)?;
        let bucket =
            Bucket::new(address, certificates.as_deref()).map_err(|error| CommandFailure::usage(error.to_string()))?;
        match timeout(CHECK_TIMEOUT, bucket.check(context.env.wall())).await {
            Ok(Ok(())) => {}
            Ok(Err(error @ BucketError::Refused { .. })) if !error.is_passing() => {
                return Err(CommandFailure::failed(format!("can't use {bucket}: {error}")).hint(
                    "Check the bucket's name, the keys and the region, and that this machine's clock is right.",
                ));
            }
            Ok(Err(error)) => {
                context.output.say_styled(TextStyle::Busy, format_args!("Artifacts aren't available yet: {error}"));
            }
            Err(_) => context
                .output
                .say_styled(TextStyle::Busy, "Artifacts aren't available yet: the object store doesn't answer"),
        }
        Ok(Some(ArtifactBucket { bucket: Arc::new(bucket), cache: self.artifacts_cache_bytes }))
    }
}

fn address(url: &str, endpoint: Option<String>, context: &CommandContext) -> Result<BucketAddress, CommandFailure> {
    let invalid =
        || CommandFailure::usage(format!("{url} isn't a bucket")).hint("Write s3://BUCKET or s3://BUCKET/PREFIX.");
    let (bucket, prefix) = {
        let path = url.strip_prefix(SCHEME).ok_or_else(invalid)?;
        path.split_once('/').unwrap_or((path, ""))
    };
    let prefix = prefix.trim_end_matches('/');
    if bucket.is_empty() || bucket.contains(['@', '?', '#', ':']) || prefix.split('/').any(|part| part == "..") {
        return Err(invalid());
    }
    let variables = context.config.object_store.clone();
    let (Some(access_key), Some(secret_key)) = (variables.access_key, variables.secret_key) else {
        return Err(CommandFailure::usage("the keys of the object store aren't set").hint(KEYS_HINT));
    };
    let region = variables.region.unwrap_or_else(|| "us-east-1".to_owned());
    let amazon = || format!("https://s3.{region}.amazonaws.com");
    Ok(BucketAddress {
        endpoint: endpoint.or(variables.endpoint).unwrap_or_else(amazon).trim_end_matches('/').to_owned(),
        region,
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        access_key,
        secret_key,
        session_token: variables.session_token,
    })
}
