//! Uploads the files that a result names, from below the task's folder, and replaces them with artifact ids.

use std::{
    fs::File,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{link::HubLink, profile::Profiles};
use attache_client::{ArtifactSource, Backoff, HubClient};
use attache_os::{confined::open_beneath, look_up};
use attache_protocol::{
    Json, WorkspaceId,
    env::Env,
    json::Members,
    wire::adapter::{ATTACHMENT_FOLDER, FileRef},
};

/// Where a result's files are uploaded, and which folders they may come from.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactUploader {
    pub(crate) hub: HubClient,
    pub(crate) workspace: WorkspaceId,
    pub(crate) cwd: Option<PathBuf>,
    /// The folder in which adapters create the private folders of runs, which hold captured output.
    pub(crate) scratch: PathBuf,
    /// Folders with keys, from which nothing is handed over.
    pub(crate) withheld: Vec<PathBuf>,
    /// The agents of this device, from whose folders nothing is handed over: a sandboxed run doesn't see them.
    pub(crate) others: Option<Profiles>,
    pub(crate) env: Env,
    pub(crate) link: HubLink,
}

const REFS: &str = "artifact_refs";

// === impl ArtifactUploader ===

impl ArtifactUploader {
    /// Returns the output with every file uploaded. An error is a sentence for the person who started the run.
    pub(crate) async fn upload_all(&self, output: Json) -> Result<Json, String> {
        let Ok(Members(mut members)) = output.parse::<Members>() else { return Ok(output) };
        let Some((_, refs)) = members.iter_mut().find(|(name, value)| name == REFS && value.get() != "null") else {
            return Ok(output);
        };
        let entries: Vec<Json> =
            refs.parse().map_err(|_| format!("The adapter's `{REFS}` is not a list of artifact ids and files."))?;
        let mut changed = false;
        let mut ids = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.is_object() {
                changed = true;
                ids.push(Json::of(&self.upload(&entry).await?));
            } else {
                ids.push(entry);
            }
        }
        if !changed {
            return Ok(output);
        }
        *refs = Json::of(&ids);
        Ok(Json::of(&Members(members)))
    }

    async fn upload(&self, entry: &Json) -> Result<String, String> {
        let FileRef { path, name, media_type } =
            entry.parse().map_err(|_| format!("An entry of `{REFS}` is neither an artifact id nor {{\"path\":…}}."))?;
        let file_path = PathBuf::from(&path);
        let (scratch, cwd, withheld) = (self.scratch.clone(), self.cwd.clone(), self.withheld.clone());
        let others = self.others.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let root = match private_folder_of(&file_path, &scratch) {
                Some(private) => Some(private),
                // A link may have been put in its place since.
                None if cwd.as_ref().is_some_and(|cwd| cwd.canonicalize().is_ok_and(|real| real != *cwd)) => {
                    return Err("the task's folder now contains a symbolic link in its path".to_owned());
                }
                None => cwd,
            };
            let others = others.map(|others| others.folders()).transpose().map_err(|error| error.to_string())?;
            open_below(root.as_deref(), &file_path, (&withheld, &others.unwrap_or_default()))
        })
        .await;
        let file = opened
            .map_err(|_| "Can't open the file.".to_owned())?
            .map_err(|why| format!("Can't deliver the file `{path}` named in the result: {why}."))?;
        let name = match &name {
            Some(name) => name.as_str(),
            None => Path::new(&path).file_name().and_then(|name| name.to_str()).unwrap_or("artifact"),
        };
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        loop {
            let failed = |error: std::io::Error| format!("Can't read the file `{path}`: {error}.");
            let size = file.metadata().map_err(failed)?.len();
            let copy = file.try_clone().map_err(failed)?;
            rustix::fs::seek(&copy, rustix::fs::SeekFrom::Start(0)).map_err(|error| failed(error.into()))?;
            let upload = ArtifactSource::File { file: tokio::fs::File::from_std(copy), size };
            match self.hub.put_artifact(self.workspace, name, media_type.as_deref(), upload).await {
                Ok(artifact) => {
                    self.link.hub_answered();
                    return Ok(artifact.artifact_id.to_string());
                }
                // Finished work must not be lost because the hub is temporarily unreachable. But one that fails again and
                // again would keep the run, and the device, forever.
                Err(error) if error.is_passing() && (error.status() != Some(500) || backoff.tries() < MAX_TRIES) => {
                    self.link.failed(&error);
                    tokio::time::sleep(backoff.next(&self.env)).await;
                }
                Err(error) => return Err(format!("The hub did not accept the file `{path}`: {error}")),
            }
        }
    }
}

/// How often an upload is tried that fails because of a fault of the hub: about a minute.
const MAX_TRIES: u32 = 10;

/// The private folder of a run that contains a file. Others can write to `scratch` too, so the folder must be named as
/// adapters name theirs (`attache-PID-ID`) and be accessible only to this user.
fn private_folder_of(file: &Path, scratch: &Path) -> Option<PathBuf> {
    let folder = file.parent().filter(|folder| folder.parent() == Some(scratch))?;
    let (process, id) = folder.file_name()?.to_str()?.strip_prefix("attache-")?.split_once('-')?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let metadata = folder.symlink_metadata().ok().filter(|_| is_id && process.parse::<u32>().is_ok())?;
    let is_private = metadata.mode() & 0o077 == 0 && metadata.uid() == rustix::process::geteuid().as_raw();
    (metadata.is_dir() && is_private).then(|| folder.to_owned())
}

/// Opens a file that is below `root` after resolving all symbolic links, and not in a folder that holds keys, or in one of
/// other agents.
fn open_below(root: Option<&Path>, path: &Path, (keys, others): (&[PathBuf], &[PathBuf])) -> Result<File, String> {
    let Some(root) = root else {
        return Err("this device has no working folder for tasks; pair it with --cwd".to_owned());
    };
    let root = root.canonicalize().map_err(|error| format!("the task's folder: {error}"))?;
    let real = root.join(path).canonicalize().map_err(|error| error.to_string())?;
    let Ok(below) = real.strip_prefix(&root) else {
        return Err("it is outside the task's folder".to_owned());
    };
    // Of whichever run: what came with another one must not be handed over, and nobody needs their own back.
    if below.starts_with(ATTACHMENT_FOLDER) {
        return Err("it is an attachment of a task; copy it first, and name the copy".to_owned());
    }
    // A mounted folder is itself below one of ours.
    for folder in keys {
        let folder = look_up::real_path(folder).map_err(|error| error.to_string())?;
        if folder.is_some_and(|folder| folder.starts_with(&root) && real.starts_with(folder)) {
            return Err("that folder holds keys and pairings".to_owned());
        }
    }
    if others.iter().any(|folder| *folder != root && folder.starts_with(&root) && real.starts_with(folder)) {
        return Err("it is in the folder of another agent".to_owned());
    }
    let folder = File::open(&root).map_err(|error| error.to_string())?;
    // Reopened from the folder itself, so that a link swapped in meanwhile leads nowhere.
    let file = open_beneath(&folder, below).map_err(|error| error.to_string())?;
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a file".to_owned());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    #[test]
    fn only_files_below_the_folder_are_opened() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("out")).unwrap();
        fs::write(root.join("out/a.txt"), "a").unwrap();
        symlink("out/a.txt", root.join("inner")).unwrap();
        symlink(root.join("out"), root.join("absolute")).unwrap();
        symlink(outside.path().join("secret"), root.join("leak")).unwrap();
        symlink(outside.path(), root.join("way")).unwrap();

        for path in ["out/a.txt", "./out/../out/a.txt", "inner", "absolute/a.txt", root.join("inner").to_str().unwrap()]
        {
            let file = open_below(Some(root), Path::new(path), (&[], &[])).unwrap();
            assert_eq!(std::io::read_to_string(file).unwrap(), "a", "{path}");
        }
        let above = format!("../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
        let absolute = outside.path().join("secret");
        for path in ["leak", "way/secret", above.as_str(), absolute.to_str().unwrap()] {
            let error = open_below(Some(root), Path::new(path), (&[], &[])).unwrap_err();
            assert!(error.contains("outside the task's folder"), "{path}: {error}");
        }
        assert_eq!(open_below(Some(root), Path::new("out"), (&[], &[])).unwrap_err(), "it is not a file");
        assert!(open_below(Some(root), Path::new("absent"), (&[], &[])).unwrap_err().contains("No such file"));
        assert!(open_below(None, Path::new("x"), (&[], &[])).unwrap_err().contains("--cwd"));
        let ours = [root.join("out")];
        for path in ["out/a.txt", "inner", "absolute/a.txt"] {
            let error = open_below(Some(root), Path::new(path), (&ours, &[])).unwrap_err();
            assert!(error.contains("holds keys"), "{path}: {error}");
            let real = [root.canonicalize().unwrap(), root.canonicalize().unwrap().join("out")];
            let error = open_below(Some(root), Path::new(path), (&[], &real)).unwrap_err();
            assert!(error.contains("folder of another agent"), "{path}: {error}");
        }
        assert!(open_below(Some(&root.join("out")), Path::new("a.txt"), (&[root.to_owned()], &[])).is_ok());
        fs::create_dir_all(root.join(".attache/run_1")).unwrap();
        fs::write(root.join(".attache/run_1/sent"), "theirs").unwrap();
        symlink(".attache/run_1", root.join("behind")).unwrap();
        for path in [".attache/run_1/sent", "out/../.attache/run_1/sent", "behind/sent"] {
            let error = open_below(Some(root), Path::new(path), (&[], &[])).unwrap_err();
            assert!(error.contains("is an attachment of a task"), "{path}: {error}");
        }
    }

    #[test]
    fn outside_the_folder_only_private_run_folders_are_readable() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode: u32| {
            let path = scratch.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let found = |path: &Path| private_folder_of(path, scratch.path());
        let own = folder("attache-17-0191e9a0000070008000000000000007", 0o700);
        assert_eq!(found(&own.join("output")), Some(own.clone()));
        assert_eq!(found(&own.join("deeper/output")), None);
        assert_eq!(found(&scratch.path().join("output")), None);
        assert_eq!(found(&folder("attache-test-1", 0o700).join("output")), None);
        assert_eq!(found(&folder("attache-18-0191e9a0000070008000000000000007", 0o755).join("output")), None);
        let link = scratch.path().join("attache-19-0191e9a0000070008000000000000007");
        symlink(&own, &link).unwrap();
        assert_eq!(found(&link.join("output")), None);
        assert_eq!(private_folder_of(&own.join("output"), Path::new("/elsewhere")), None);
    }
}
