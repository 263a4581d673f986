// SPDX-License-Identifier: Apache-2.0
// The `nacre` command: the tree of subcommands and their options. --help, the man page (--man) and the parser are one text.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include "tools/nacre/commands.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {

/// Prints the whole tree as a man page, from the same descriptions that --help shows.
void print_man(const CLI::App& app) {
  fmt::print(".TH NACRE 1\n.SH NAME\nnacre \\- {}\n.SH SYNOPSIS\n.B nacre\nNOUN VERB [OPTIONS]\n.SH COMMANDS\n", app.get_description());
  std::function<void(const CLI::App&, std::string)> walk = [&](const CLI::App& a, std::string prefix) {
    for (const CLI::App* sub : a.get_subcommands(nullptr)) {
      const std::string name = prefix + " " + sub->get_name();
      if (sub->get_subcommands(nullptr).empty()) {
        fmt::print(".SS {}\n{}\n", name.substr(1), sub->get_description());
        for (const CLI::Option* opt : sub->get_options())
          if (opt->get_name() != "--help") fmt::print(".TP\n.B {}\n{}\n", opt->get_name(false, true), opt->get_description());
      } else {
        walk(*sub, name);
      }
    }
  };
  walk(app, "");
  fmt::print(".SH EXIT STATUS\n0 all is well; 1 something was found or failed; 2 wrong usage; 3 the cluster can't be reached.\n"
             ".SH ENVIRONMENT\n.B NACRE_CLUSTER\nnames the cluster file or its directory where no path and no \\-\\-cluster does; else /etc/nacre/cluster.toml.\n");
}

void common_options(CLI::App* app, Common& common, bool json = true) {
  app->add_option("--cluster", common.cluster, "cluster file, or the directory it lies in");
  if (json) app->add_flag("--json", common.json, "one JSON object with \"version\": 1; sizes in bytes, times in seconds since the epoch");
}

struct Commands {
  ClusterInit init;
  ClusterRun run;
  Mount mnt;
  Df df_args;
  Stripe stripe;
  PathArgs paths;
  InoArgs ino;
  OstArgs ost;
  OstAdd add;
  PoolArgs pool;
  Migrate move;
  bool blocks = false;
  ClientArgs client;
  FsckArgs fsck;
  MdsArgs mds;
  ChangelogArgs changelog;
  StripeComponent last;
  std::vector<std::string> ends, counts, sizes, pools, firsts;
  int code = kOk;
};

void add_cluster(CLI::App& app, Commands& c) {
  auto* cluster = app.add_subcommand("cluster", "make, start, stop and look at a cluster")->require_subcommand(1);
  auto* init = cluster->add_subcommand("init", "make a cluster in DIR: identity, key, cluster file, formatted data directories");
  init->add_option("DIR", c.init.dir, "directory of the cluster file and, for a single node, of all data")->required();
  init->add_option("--osts", c.init.osts, "storage targets of a single node (4)");
  init->add_option("--size", c.init.size, "capacity of each storage target (default: the free space of DIR's filesystem, shared)");
  init->add_option("--config", c.init.config, "cluster file that names the hosts and servers to use");
  init->add_option("--host", c.init.host, "prepare only the servers of this host; with DIR holding a cluster already, prepare a further host of it");
  init->callback([&c] { c.code = cluster_init(c.init); });
  auto add_run = [&](const char* name, const char* text, int (*fn)(const ClusterRun&), bool json) {
    auto* sub = cluster->add_subcommand(name, text);
    sub->add_option("DIR|FILE", c.run.target, "cluster directory or file");
    sub->add_option("--host", c.run.host, "only servers of this host (default: this machine's)");
    common_options(sub, c.run.common, json);
    sub->callback([&c, fn] { c.code = fn(c.run); });
  };
  add_run("start", "start the servers of this host that are down, and wait until they serve", cluster_start, false);
  add_run("stop", "stop the servers of this host cleanly", cluster_stop, false);
  add_run("status", "role, target, pid, address and state of every server", cluster_status, true);
}

void add_mount(CLI::App& app, Commands& c) {
  auto* mount_cmd = app.add_subcommand("mount", "mount a cluster");
  mount_cmd->add_option("-o", c.mnt.options, "mount options, comma-separated: ro, subdir=/x, soft=SECONDS, mask=…, key=FILE, log=FILE");
  mount_cmd->add_flag("-f,--foreground", c.mnt.foreground, "stay in the foreground");
  mount_cmd->add_option("--cluster", c.mnt.common.cluster, "cluster file for a SOURCE of host names");
  mount_cmd->add_option("SOURCE", c.mnt.source, "HOST[:PORT][,HOST…]:/[SUB] or a cluster directory")->required();
  mount_cmd->add_option("MNT", c.mnt.mountpoint, "mount point")->required();
  mount_cmd->callback([&c] { c.code = mount(c.mnt); });
  auto* umount_cmd = app.add_subcommand("umount", "unmount");
  umount_cmd->add_flag("-l,--lazy", c.mnt.lazy, "detach now, end when the last user is gone");
  umount_cmd->add_flag("-f,--force", c.mnt.force, "abort requests that wait");
  umount_cmd->add_option("MNT", c.mnt.mountpoint, "mount point")->required();
  umount_cmd->callback([&c] { c.code = umount(c.mnt); });
}

void add_layout_options(CLI::App* sub, Commands& c) {
  sub->add_option("-c,--stripe-count", c.counts, "storage targets to stripe over; -1 = all (1)")->expected(1)->take_all();
  sub->add_option("-S,--stripe-size", c.sizes, "bytes per stripe, a multiple of 64 KiB (1M)")->expected(1)->take_all();
  sub->add_option("-i,--ost", c.firsts, "storage target of the first stripe; -1 = any")->expected(1)->take_all();
  sub->add_option("-p,--pool", c.pools, "pool of storage targets")->expected(1)->take_all();
  sub->add_option("-E,--component-end", c.ends, "end of a component; repeat with the options of each; -1 or eof for the last")->expected(1)->take_all();
}

/// The order on the command line decides to which component an option belongs: each -E starts one (as in lfs setstripe). Empty
/// without any of these options.
std::vector<StripeComponent> components_of(const CLI::App& sub) {
  std::map<std::string, size_t> next;
  std::vector<StripeComponent> out;
  StripeComponent current;
  bool any = false;
  for (const CLI::Option* opt : sub.parse_order()) {
    const std::string name = opt->get_single_name();
    if (name != "component-end" && name != "stripe-count" && name != "stripe-size" && name != "ost" && name != "pool") continue;
    const std::string value = opt->results().at(next[name]++);
    if (name == "component-end") {
      if (any) out.push_back(current);
      current = StripeComponent{};
      current.end = value;
    } else if (name == "stripe-count") {
      current.count = std::stoi(value);
    } else if (name == "stripe-size") {
      current.size = value;
    } else if (name == "ost") {
      current.first_ost = std::stoi(value);
    } else {
      current.pool = value;
    }
    any = true;
  }
  if (any) out.push_back(current);
  return out;
}

void add_migrate(CLI::App& app, Commands& c) {
  auto* sub = app.add_subcommand("migrate", "move the data of files to other storage targets while they are in use; names, times, attributes and inode numbers stay. Without options: by the layout they have");
  add_layout_options(sub, c);
  sub->add_option("FILE", c.move.paths, "plain files inside a mount, owned by the caller (root: any)")->required();
  sub->add_flag("--json", c.move.common.json, "one JSON object");
  sub->callback([&c, sub] {
    c.move.components = components_of(*sub);
    c.code = migrate(c.move);
  });
}

/// Collects lfs-style options in order: each -E closes a component; options before it belong to it.
void add_stripe(CLI::App& app, Commands& c) {
  auto* stripe = app.add_subcommand("stripe", "layout of files and directories")->require_subcommand(1);
  auto* set = stripe->add_subcommand("set", "set the layout of a directory's new files, or of a file without data (created if missing)");
  add_layout_options(set, c);
  set->add_flag("-d,--delete", c.stripe.reset, "remove a directory's own layout: what is created inherits again");
  set->add_option("PATH", c.stripe.paths, "directories or files")->required();
  set->callback([&c, set] {
    c.stripe.components = components_of(*set);
    if (c.stripe.components.empty()) c.stripe.components.emplace_back();
    c.code = stripe_set(c.stripe);
  });
  auto* get = stripe->add_subcommand("get", "show the layout and where the stripes lie");
  get->add_flag("--json", c.stripe.common.json, "one JSON object");
  get->add_option("PATH", c.stripe.paths, "files or directories")->required();
  get->callback([&c] { c.code = stripe_get(c.stripe); });
}

void add_paths(CLI::App& app, Commands& c) {
  auto* df_cmd = app.add_subcommand("df", "space per storage target and in sum");
  df_cmd->set_help_flag("--help", "print this help");
  df_cmd->add_flag("-h,--human", c.df_args.human, "sizes with units");
  df_cmd->add_flag("-i,--inodes", c.df_args.inodes, "inodes and objects instead of space");
  df_cmd->add_option("PATH", c.df_args.path, "path inside a mount");
  common_options(df_cmd, c.df_args.common);
  df_cmd->callback([&c] { c.code = df(c.df_args); });
  auto add = [&](const char* name, const char* text, int (*fn)(const PathArgs&), bool required) {
    auto* sub = app.add_subcommand(name, text);
    auto* opt = sub->add_option("PATH", c.paths.paths, "paths inside a mount");
    if (required) opt->required();
    sub->add_flag("--json", c.paths.common.json, "one JSON object");
    sub->callback([&c, fn] { c.code = fn(c.paths); });
  };
  auto* stat_cmd = app.add_subcommand("stat", "attributes, content time, fileset, layout generation and objects of a file");
  stat_cmd->add_option("PATH", c.paths.paths, "paths inside a mount")->required();
  stat_cmd->add_flag("--blocks", c.blocks, "instead: which storage target holds which bytes of the file; holes are left out");
  stat_cmd->add_flag("--json", c.paths.common.json, "one JSON object");
  stat_cmd->callback([&c] { c.code = c.blocks ? stat_blocks(c.paths) : stat(c.paths); });
  add("fid", "inode number of a path", fid, true);
  add("sync", "make durable what was written through the mount", sync, false);
  auto* path_cmd = app.add_subcommand("path", "names of an inode number");
  path_cmd->add_option("INO", c.ino.ino, "inode number")->required();
  path_cmd->add_option("--in", c.ino.path, "a path inside the mount to ask (default: the working directory, else the cluster)");
  common_options(path_cmd, c.ino.common);
  path_cmd->callback([&c] { c.code = path(c.ino); });
}

void add_pools(CLI::App& app, Commands& c) {
  auto* pool = app.add_subcommand("pool", "named sets of storage targets, for 'stripe set -p' and 'migrate -p'")->require_subcommand(1);
  auto* list = pool->add_subcommand("list", "pools and their targets");
  common_options(list, c.pool.common);
  list->callback([&c] { c.code = pool_list(c.pool); });
  auto add = [&](const char* name, const char* text, PoolArgs::Verb verb) {
    auto* sub = pool->add_subcommand(name, text);
    sub->add_option("POOL", c.pool.pool, "its name")->required();
    sub->add_option("TARGET", c.pool.targets, "ost0, ost1 … or numbers")->required();
    common_options(sub, c.pool.common, false);
    sub->callback([&c, verb] {
      c.pool.verb = verb;
      c.code = pool_change(c.pool);
    });
  };
  add("create", "a new pool of these targets: in the cluster file; those that run here are started anew, one after the other", PoolArgs::Verb::kCreate);
  add("add", "put more targets into a pool", PoolArgs::Verb::kAdd);
  add("remove", "take targets out of a pool; without targets it is gone. Files that lie on them stay there", PoolArgs::Verb::kRemove);
}

void add_admin(CLI::App& app, Commands& c) {
  auto* ost = app.add_subcommand("ost", "storage targets")->require_subcommand(1);
  auto* list = ost->add_subcommand("list", "capacity, use and state of every storage target");
  common_options(list, c.ost.common);
  list->callback([&c] { c.code = ost_list(c.ost); });
  auto add_state = [&](const char* name, const char* text, bool activate) {
    auto* sub = ost->add_subcommand(name, text);
    sub->add_option("TARGET", c.ost.target, "ost0, ost1 … or its number")->required();
    common_options(sub, c.ost.common, false);
    sub->callback([&c, activate] {
      c.ost.activate = activate;
      c.code = ost_set_state(c.ost);
    });
  };
  add_state("activate", "use the target again", true);
  add_state("deactivate", "no new data goes to the target, and I/O on it fails at once with EIO", false);
  auto* drain = ost->add_subcommand("drain", "move everything that lies on the target to the others while it is in use; it takes no new data until 'activate'. 1 if anything is left, which is listed");
  drain->add_option("TARGET", c.ost.target, "ost0, ost1 … or its number")->required();
  common_options(drain, c.ost.common);
  drain->callback([&c] { c.code = ost_drain(c.ost); });
  auto* add = ost->add_subcommand("add", "one more storage target on this machine, for a cluster of one node: formatted, in the cluster file, started");
  add->add_option("DIR", c.add.directory, "its data directory (default: beside the others)");
  add->add_option("--size", c.add.size, "its capacity (default: that of the largest)");
  common_options(add, c.add.common);
  add->callback([&c] { c.code = ost_add(c.add); });
  auto* client = app.add_subcommand("client", "mounted clients")->require_subcommand(1);
  auto* clients = client->add_subcommand("list", "sessions with host, mount, open files, locks and their oldest waiting operation");
  common_options(clients, c.client.common);
  clients->callback([&c] { c.code = client_list(c.client); });
  auto* evict = client->add_subcommand("evict", "end a session: its locks and open files go, its later writes fail");
  evict->add_option("SESSION", c.client.session, "number from 'nacre client list'")->required();
  common_options(evict, c.client.common, false);
  evict->callback([&c] { c.code = client_evict(c.client); });
  auto* mounted = client->add_subcommand("status", "features, servers and waiting operations of a mount on this machine; 1 if a client is dead or evicted, or something waits for longer than 30 s");
  mounted->add_option("MOUNT", c.client.mount, "mount point (default: all Nacre mounts)");
  mounted->add_flag("--json", c.client.common.json, "one JSON object with \"version\": 1");
  mounted->callback([&c] { c.code = client_status(c.client); });
  auto* abort = client->add_subcommand("abort", "fail with EIO, at once, all that waits for servers in a mount on this machine; the mount stays and serves again when they are back");
  abort->add_option("MOUNT", c.client.mount, "mount point; root or the owner of the mount")->required();
  abort->callback([&c] { c.code = client_abort(c.client); });
  auto* mds = app.add_subcommand("mds", "metadata server")->require_subcommand(1);
  auto* status = mds->add_subcommand("status", "state, recovery and whom it waits for, sessions, journal, commands owed to storage targets; 1 while recovering");
  status->add_flag("--abort-recovery", c.mds.abort_recovery, "evict now the sessions that have not reclaimed what they hold since the server's restart");
  common_options(status, c.mds.common);
  status->callback([&c] { c.code = mds_status(c.mds); });
  auto* backup = mds->add_subcommand("backup", "copy the metadata into DIR while the server serves");
  backup->add_option("DIR", c.mds.directory, "a directory that does not exist yet: an absolute path on the metadata server's host")->required();
  common_options(backup, c.mds.common);
  backup->callback([&c] { c.code = mds_backup(c.mds); });
  auto* restore = mds->add_subcommand("restore", "put a backup in the place of the metadata, on the metadata server's host, while the server is stopped; what was there is kept");
  restore->add_option("DIR", c.mds.directory, "a directory that 'nacre mds backup' made")->required();
  common_options(restore, c.mds.common, false);
  restore->callback([&c] { c.code = mds_restore(c.mds); });
}

void add_fsck(CLI::App& app, Commands& c) {
  auto add = [&](const char* name, const char* text, bool scrub_only) {
    auto* sub = app.add_subcommand(name, text);
    sub->add_option("PATH", c.fsck.path, "a path inside a mount: the cluster is found from it and files are named below it (default: a local mount of the cluster, if there is one)");
    sub->add_option("--rate", c.fsck.rate, "read at most so many bytes of each storage target a second, like 100M (default: as fast as it goes)");
    if (!scrub_only) sub->add_flag("--repair", c.fsck.repair, "repair what can be; what has lost its name goes to /lost+found, objects without a file are destroyed");
    common_options(sub, c.fsck.common);
    sub->callback([&c, scrub_only] {
      c.fsck.scrub_only = scrub_only;
      c.code = fsck(c.fsck);
    });
  };
  add("fsck", "check the whole cluster while it serves: names, counts, objects, checksums, usage; one line per problem, the last line is 'N problems'; 1 if any is left", false);
  add("scrub", "verify the checksums of all stored data while the cluster serves; the last line is 'N problems'", true);
}

void add_changelog(CLI::App& app, Commands& c) {
  auto* log = app.add_subcommand("changelog", "what happened to names and attributes, for programs that follow the filesystem")->require_subcommand(1);
  auto* reg = log->add_subcommand("register", "make a reader, which begins behind the newest entry of now");
  reg->add_option("NAME", c.changelog.name, "a name for people");
  common_options(reg, c.changelog.common);
  reg->callback([&c] { c.code = changelog_register(c.changelog); });
  auto* read = log->add_subcommand("read", "entries that the reader has not cleared, one a line; 1 if entries in between are lost, which is said where they would be");
  read->add_option("READER", c.changelog.reader, "number or name of a reader")->required();
  read->add_option("--after", c.changelog.after, "only entries after this number (default: after what is cleared)");
  read->add_option("--limit", c.changelog.limit, "at most so many entries (default: all)");
  read->add_option("--cluster", c.changelog.common.cluster, "cluster file, or the directory it lies in");
  read->add_flag("--json", c.changelog.common.json, "one JSON object a line, each with \"version\": 1; times in seconds since the epoch");
  read->callback([&c] { c.code = changelog_read(c.changelog); });
  auto* clear = log->add_subcommand("clear", "the reader needs nothing up to this entry any more");
  clear->add_option("READER", c.changelog.reader, "number or name of a reader")->required();
  clear->add_option("SEQ", c.changelog.sequence, "number of an entry; 0 = the newest")->required();
  common_options(clear, c.changelog.common, false);
  clear->callback([&c] { c.code = changelog_clear(c.changelog); });
  auto* list = log->add_subcommand("list", "readers, and which entries there are");
  common_options(list, c.changelog.common);
  list->callback([&c] { c.code = changelog_list(c.changelog); });
  auto* drop = log->add_subcommand("deregister", "remove a reader");
  drop->add_option("READER", c.changelog.reader, "number or name of a reader")->required();
  common_options(drop, c.changelog.common, false);
  drop->callback([&c] { c.code = changelog_deregister(c.changelog); });
}

int run(int argc, char** argv) {
  CLI::App app("Nacre: parallel filesystem and storage tiers for research clusters", "nacre");
  app.require_subcommand(1);
  app.set_version_flag("--version", NACRE_VERSION);
  if (argc == 2 && std::string_view(argv[1]) == "--man") {
    Commands c;
    add_cluster(app, c), add_mount(app, c), add_stripe(app, c), add_migrate(app, c), add_paths(app, c), add_admin(app, c), add_pools(app, c), add_fsck(app, c), add_changelog(app, c);
    print_man(app);
    return kOk;
  }
  Commands c;
  add_cluster(app, c), add_mount(app, c), add_stripe(app, c), add_migrate(app, c), add_paths(app, c), add_admin(app, c), add_pools(app, c), add_fsck(app, c), add_changelog(app, c);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  } catch (const std::logic_error&) {
    return complain(kUsage, "an option that takes a number got something else: see --help");
  }
  return c.code;
}
}  // namespace
}  // namespace nacre::cli

int main(int argc, char** argv) { return nacre::cli::run(argc, argv); }
