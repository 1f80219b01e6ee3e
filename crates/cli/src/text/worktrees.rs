//! `attache worktrees`.

texts! {
    run: "RUN" zh "运行";
    changes: "CHANGES" zh "更改";
    none: "No worktrees on this device. Start a run with one: attache ask AGENT \"…\" --worktree" zh "此设备上没有工作树。启动带工作树的运行：attache ask AGENT \"…\" --worktree";
    kept_for(n): "After {n} day, a worktree's changes are committed to its branch and its files are removed." | "After {n} days, a worktree's changes are committed to its branch and its files are removed." zh "{n} 天后，工作树的更改会提交到其分支，文件会被移除。";

    // what a run changed
    working: "working" zh "工作中";
    in_use: "folder in use" zh "文件夹使用中";
    unknown: "unknown" zh "未知";
    unchanged: "none" zh "无";
    files(n): "{n} file" | "{n} files" zh "{n} 个文件";
    uncommitted(files): "{files}, uncommitted" zh "{files}，未提交";
    committed(files): "{files}, committed" zh "{files}，已提交";
    branch_has_more(summary): "{summary}; the branch has more" zh "{summary}；分支上还有更多";
    nested_have_more(summary): "{summary}; more in repositories or submodules" zh "{summary}；嵌套的仓库或子模块中还有更多";
    nothing_changed: "Nothing was changed." zh "没有更改。";
    differs_on_branch(files, base, branch): "The branch has commits with different content, which a merge would bring in, for: {files}. To see it: git diff {base} {branch}" zh "分支上的提交对以下文件有不同的内容，合并时会一并带入：{files}。查看：git diff {base} {branch}";
    nested(name): "{name} is a separate repository or a submodule. It isn't part of the changes." zh "{name} 是独立的仓库或子模块，不属于这些更改。";

    // finding one
    none_here: "there are no worktrees on this device" zh "此设备上没有工作树";
    none_of(run): "no run `{run}` has a worktree on this device" zh "此设备上没有运行 `{run}` 的工作树";
    none_do: "List them on the agent's device: attache worktrees" zh "在智能体的设备上查看列表：attache worktrees";
    ambiguous(n, run): "`{run}` matches {n} run" | "`{run}` matches {n} runs" zh "`{run}` 匹配 {n} 个运行";
    ambiguous_do: "Use a longer part of the id." zh "请输入更长的 ID。";

    // committing, applying and discarding
    default_message(run): "Changes of {run}" zh "{run} 的更改";
    done_commit(commit, branch): "Committed {commit}. Next: git merge {branch}" zh "已提交 {commit}。下一步：git merge {branch}";
    nothing_to_apply(folder, run): "{folder} already has all changes. To remove the worktree: attache worktrees discard {run}" zh "{folder} 已包含全部更改。移除工作树：attache worktrees discard {run}";
    applied(n, folder, run): "Applied {n} file to {folder}. To remove the worktree: attache worktrees discard {run}" | "Applied {n} files to {folder}. To remove the worktree: attache worktrees discard {run}" zh "已将 {n} 个文件应用到 {folder}。移除工作树：attache worktrees discard {run}";
    ask_discard(run, branch, changes): "Discard the worktree of {run} and the branch {branch}? Changes: {changes}." zh "丢弃 {run} 的工作树和分支 {branch}？更改：{changes}。";
    not_discarded: "nothing was discarded" zh "未丢弃任何内容";
    discarded(branch): "Discarded the worktree and {branch}." zh "已丢弃工作树和 {branch}。";
    discarded_without_repository(folder, branch): "Discarded the worktree. Its repository is no longer at {folder}, so the branch {branch} may still be in it." zh "已丢弃工作树。其仓库已不在 {folder}，因此分支 {branch} 可能仍保留在仓库中。";

    // what went wrong
    unchanged_there: "nothing was changed in the worktree" zh "工作树中没有更改";
    see_all(run): "See everything it changed: attache worktrees diff {run}" zh "查看它的全部更改：attache worktrees diff {run}";
    conflicts(folder, files): "these files were also changed in {folder}: {files}; nothing was applied" zh "以下文件在 {folder} 中也被更改：{files}；未应用任何内容";
    conflicts_do(run, branch): "Commit them to the branch and merge it with git: attache worktrees commit {run}, then git merge {branch}" zh "请提交到分支并用 git 合并：attache worktrees commit {run}，然后 git merge {branch}";
    still_working(run): "{run} is still working in its worktree; wait until it ends, or cancel it" zh "{run} 仍在其工作树中工作；请等待它结束，或取消它";
    working_do(run): "Follow it: attache runs show {run}. Cancel it: attache runs cancel {run}" zh "查看：attache runs show {run}。取消：attache runs cancel {run}";
    // at the device, through the hub
    unanswered: "the device didn't answer in time" zh "设备未及时答复";
    unanswered_do: "On the device, see what became of the changes: attache worktrees" zh "请在设备上查看这些更改的情况：attache worktrees";
    absent_there(run): "the device has no worktree of {run}" zh "设备上没有 {run} 的工作树";
    failed_there(message): "that failed on the device: {message}" zh "设备上操作失败：{message}";
    its_files(run): "Its files: attache worktrees path {run}" zh "其文件：attache worktrees path {run}";
}
