#include "tessera/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return test::refusal([&] { parse_config(text, "job.toml", overrides); });
}

constexpr const char* kDesignExample = R"([plugins]
path = ["/opt/acme/tessera"]
require = ["acme.stripe"]
[job]
seed = 1
device = "auto"
threads = 0
[comm]
backend = "auto"
timeout_s = 30
[model]
type = "dlrm"
embedding_dim = 16
bottom_mlp = [64, 16]
top_mlp = [64, 32, 1]
[table_defaults]
compute_kernel = "fused"
optimizer = { name = "exact_rowwise_adagrad", learning_rate = 0.05, eps = 1e-8 }
[[table]]
name = "film"
rows = 1682
features = ["film"]
pooling = "sum"
sharding = ["row_wise", "table_wise"]
[dense_optimizer]
name = "adagrad"
learning_rate = 0.02
eps = 1e-8
[planner]
plan = ""
hbm_gib = 0
[data]
reader = "movielens-100k"
path = "data/ml-100k"
batch = 128
epochs = 1
[report]
json = "report.json"
)";

TEST(Config, ReadsTheExampleOfTheDesign) {
  const Config c = parse_config(kDesignExample, "job.toml");
  EXPECT_THAT(c.plugins.require, ElementsAre("acme.stripe"));
  EXPECT_EQ(c.comm.timeout_s, 30.0);
  EXPECT_THAT(c.model.top_mlp, ElementsAre(64, 32, 1));
  ASSERT_EQ(c.tables.size(), 1u);
  EXPECT_EQ(c.tables[0].rows, 1682);
  EXPECT_THAT(c.tables[0].sharding, ElementsAre("row_wise", "table_wise"));
  EXPECT_EQ(c.tables[0].optimizer.name, "exact_rowwise_adagrad");
  EXPECT_EQ(c.tables[0].optimizer.options, R"({"learning_rate":0.05,"eps":1e-08})");
  EXPECT_EQ(c.data.reader, "movielens-100k");
  EXPECT_EQ(c.report.json, "report.json");
}

TEST(Config, LayersMakeAGraph) {
  const std::string text = R"([model]
inputs = ["dense", "film"]
[[layer]]
name = "top"
type = "mlp"
inputs = ["dense", "film"]
options = { widths = [64, 1], dropout = 0.5, final_activation = "none" }
[[layer]]
name = "plain"
type = "sum"
inputs = "top"
[[head]]
name = "click"
input = "top"
weight = 2
groups = "user"
)";
  const Config c = parse_config(text, "job.toml");
  EXPECT_EQ(c.model.type, "graph");
  EXPECT_THAT(c.model.inputs, ElementsAre("dense", "film"));
  ASSERT_EQ(c.layers.size(), 2u);
  EXPECT_EQ(c.layers[0].options.json, R"({"widths":[64,1],"dropout":0.5,"final_activation":"none"})");
  EXPECT_EQ(c.layers[1].options.json, "{}");
  EXPECT_THAT(c.layers[1].inputs, ElementsAre("top"));
  EXPECT_EQ(c.heads.at(0), (HeadConfig{"click", "top", "binary_cross_entropy", "label", 2, "user"}));
  EXPECT_EQ(parse_config(to_toml(c), "again"), c) << to_toml(c);
  EXPECT_THAT(error_of("[[layer]]\nname = \"a\"\noptions = 3\n"),
              testing::HasSubstr("layer.options must be an inline table"));
  EXPECT_THAT(error_of("[[layer]]\ntype = \"mlp\"\n"), testing::HasSubstr("job.toml:1: this [[layer]] has no name"));
  EXPECT_THAT(error_of("[[head]]\nname = \"a\"\n"), testing::HasSubstr("there is no [[layer]]"));
  EXPECT_THAT(error_of("layer = 3\n"), testing::HasSubstr("each written [[layer]]"));
}

// The reader plugins choose it when they are there.
TEST(Reader, IsUnsetIfOnlyThePathIsGiven) {
  EXPECT_EQ(parse_config("[data]\npath = \"a.csv\"\n", "j").data.reader, "");
  EXPECT_EQ(parse_config("", "j", {"data.path=a.csv"}).data.reader, "");
  EXPECT_EQ(parse_config("[data]\npath = \"a.csv\"\nreader = \"tsv\"\n", "j").data.reader, "tsv");
  EXPECT_EQ(parse_config("", "j").data.reader, "synthetic");
}

TEST(Effects, OfKeysOfAnotherReader) {
  const auto data = [](const std::string& keys) { return error_of("[data]\n" + keys); };
  EXPECT_THAT(data("reader = \"synthetic\"\npath = \"a.csv\"\n"),
              AllOf(StartsWith("job.toml:3: data.path has no effect: the reader \"synthetic\" generates its data"),
                    HasSubstr("leave it out, or set data.reader")));
  for (const char* key : {"samples = 100000", "test_samples = 1", "columns = 3", "dense = 2", "pooling = 2",
                          "labels = 2", "index_dist = \"uniform\""})
    EXPECT_THAT(data(std::string("path = \"a.csv\"\n") + key + "\n"),
                AllOf(StartsWith("job.toml:3: data."),
                      HasSubstr("has no effect: only the reader \"synthetic\" uses it, and this job reads files")))
        << key;
  for (const char* key : {"test_path = \"b\"", "order_by = \"t\"", "buffer_mib = 3", "limit = 4", "test = \"last\"",
                          "test_fraction = 0.2"})
    EXPECT_THAT(data(key), AllOf(StartsWith("job.toml:2: data."), HasSubstr("has no effect"))) << key;
  EXPECT_THAT(data("path = \"a.csv\"\ntest_path = \"b.csv\"\ntest_fraction = 0.2\n"),
              HasSubstr("data.test_fraction has no effect: the test rows are those of b.csv"));
  EXPECT_THAT(data("path = \"a.csv\"\ntest = \"file:b.csv\"\ntest_fraction = 0.1\n"),
              HasSubstr("data.test_fraction has no effect: the test rows are those of b.csv"))
      << "also the default";
  const std::string described = "[data]\nreader = \"csv\"\npath = \"a.csv\"\ntest = \"random\"\ntest_fraction = 0.1\n";
  EXPECT_EQ(parse_config(described, "job.toml", {"data.test=file:b.csv"}).data.test, "file:b.csv");
  EXPECT_EQ(data("path = \"a.csv\"\ntest_path = \"b.csv\"\nlimit = 5\nbuffer_mib = 3\norder_by = \"t\"\n"), "no error");
  EXPECT_EQ(data("path = \"a.csv\"\ndense = 0\nrows = []\n"), "no error") << "they are off";
  EXPECT_EQ(data("reader = \"criteo-tsv\"\npath = \"a\"\nrows = 5\ntest_fraction = 0.3\n"), "no error");
  EXPECT_THAT(data("path = \"a\"\nsplit = \"time\"\n"),
              AllOf(StartsWith("job.toml:3: "), HasSubstr("reader = \"movielens-100k?split=time\"")));
  const std::vector<std::string> other = {"data.reader=csv", "data.path=a.csv"};
  EXPECT_THAT(parse_config("[data]\nrows = 5\nsamples = 3\n", "j", other).data.rows, IsEmpty())
      << "they are of generated data";
  EXPECT_THAT(error_of("[data]\npath = \"a.csv\"\n", {"data.samples=5"}),
              StartsWith("--set data.samples=5: data.samples"));
}

TEST(Effects, OfKeysThatNeedAnother) {
  const std::string layer = "[[layer]]\nname = \"a\"\ntype = \"mlp\"\n";
  EXPECT_THAT(error_of("[model]\ntop_mlp = [8, 1]\n" + layer), HasSubstr("job.toml:2: model.top_mlp has no effect"));
  EXPECT_THAT(error_of("[model]\ninputs = \"pooled\"\n"), HasSubstr("model.inputs has no effect: a DLRM"));
  EXPECT_THAT(error_of(layer + "[table_defaults]\nembedding_dim = 8\n", {"model.embedding_dim=4"}),
              HasSubstr("--set model.embedding_dim=4: model.embedding_dim has no effect: every table has its own"));
  EXPECT_THAT(error_of("[validation]\nsplit = \"last\"\n"),
              HasSubstr("validation.split has no effect: no rows are kept"));
  EXPECT_EQ(error_of("[validation]\nsplit = \"last\"\n", {"validation.fraction=0"}), "no error") << "switched off";
  EXPECT_THAT(error_of("[metrics]\nwindow = 50\n"), HasSubstr("metrics.window has no effect"));
  EXPECT_EQ(error_of("[metrics]\nwindow = 50\ntraining = \"ne\"\n"), "no error");
}

TEST(Effects, OfWhatIsFrozenOrPlanned) {
  const std::string tables = "[[table]]\nname = \"a\"\ntrainable = false\n",
                    layers = "[[layer]]\nname = \"a\"\ntype = \"mlp\"\ntrainable = false\n";
  EXPECT_THAT(error_of("[schedule]\ntables = \"cosine\"\n" + tables),
              HasSubstr("schedule.tables has no effect: every [[table]] has trainable = false"));
  EXPECT_THAT(error_of("[schedule]\ndense = \"cosine\"\n" + layers), HasSubstr("schedule.dense has no effect"));
  EXPECT_THAT(error_of("[dense_optimizer]\nlearning_rate = 0.1\n" + layers),
              HasSubstr("dense_optimizer.learning_rate has no effect: every [[layer]] has trainable = false"));
  EXPECT_THAT(error_of("[job]\nema = 0.9\n" + layers), HasSubstr("job.ema has no effect"));
  EXPECT_THAT(error_of("[planner]\nplan = \"p.json\"\nsearch = \"torchrec\"\n"),
              HasSubstr("planner.search has no effect: planner.plan is a plan"));
}

TEST(Effects, OfHistories) {
  const std::string data = "[data]\npath = \"a.csv\"\n";
  EXPECT_THAT(error_of(data + "[history]\nlength = 20\n"),
              HasSubstr("job.toml:4: history.length has no effect: set history.user"));
  EXPECT_THAT(error_of(data + "[history]\nrepeats = false\n"),
              HasSubstr("job.toml:4: history.repeats has no effect: set history.user"));
  EXPECT_THAT(error_of(data + "[history]\nuser = \"u\"\ncolumns = [\"item\", \"stars\"]\n"
                              "[[column]]\nname = \"items\"\ncolumn = \"history.item\"\n"),
              HasSubstr("history.columns has no effect: no [[column]] reads history.stars: leave \"stars\" out"));
  EXPECT_THAT(error_of("[data]\nreader = \"synthetic\"\n[history]\nuser = \"u\"\n"),
              HasSubstr("history.user has no effect: the reader \"synthetic\" generates its data"));
  EXPECT_THAT(error_of(data + "[history]\nuser = \"u\"\nlength = 0\n"), HasSubstr("history.length"));
  EXPECT_THAT(error_of(data + "[history]\nuser = \"u\"\nsplit = \"last\"\n"), HasSubstr("leave_one_out"));
  const Config c = parse_config(data + "[history]\nuser = \"u\"\ncolumns = [\"a\", \"b\"]\n", "j", {});
  EXPECT_EQ(parse_config(to_toml(c), "printed", {}), c);
  EXPECT_THAT(to_toml(Config()), Not(HasSubstr("[history]")));
}

TEST(Effects, OfWhatEveryTableSaysItself) {
  const std::string tables = "[[table]]\nname = \"a\"\nembedding_dim = 4\n[[table]]\nname = \"b\"\nembedding_dim = 8\n";
  EXPECT_THAT(error_of("[table_defaults]\nembedding_dim = 2\n" + tables),
              HasSubstr("table_defaults.embedding_dim has no effect: every [[table]] has its own"));
  EXPECT_THAT(error_of(tables, {"table_defaults.embedding_dim=2"}),
              StartsWith("--set table_defaults.embedding_dim=2: "));
  EXPECT_EQ(error_of(tables + "[[table]]\nname = \"c\"\n", {"table_defaults.embedding_dim=2"}), "no error");
  EXPECT_THAT(
      error_of("[[table]]\nname = \"a\"\ncompute_kernel = \"dense\"\ncompute_kernels = \"fused\"\n"),
      HasSubstr("job.toml:3: table.a.compute_kernel has no effect: the planner chooses from its compute_kernels"));
  const Config c =
      parse_config("[table_defaults]\ncompute_kernel = \"dense\"\n" + tables, "j", {"table.a.compute_kernels=fused"});
  EXPECT_EQ(parse_config(to_toml(c), "again"), c) << to_toml(c);
}

TEST(Config, AnEmptyFileOfAJobIsRefused) {
  const test::TestDirectory folder;
  const std::string path = folder.write("job.toml", "# nothing\n");
  EXPECT_THAT(test::refusal(Code::kInvalidArgument, [&] { load_config(path); }),
              AllOf(HasSubstr(path + " is empty"), HasSubstr("reader = \"synthetic\"")));
  EXPECT_EQ(load_config(path, {"data.samples=5"}).data.samples, 5);
}

TEST(Config, AnEmptyFileIsTheDefaults) { EXPECT_EQ(parse_config("", "job.toml"), Config()); }

TEST(Config, DefaultsReachTablesAndTablesOverrideThem) {
  const Config c = parse_config(R"(
[table_defaults]
optimizer = { name = "exact_sgd", learning_rate = 1 }
ranks = [0, 1]
init_range = 0.5
[[table]]
name = "a"
[[table]]
name = "b"
optimizer = { eps = 0.1, name = "adam", beta1 = 0.5 }
ranks = 3
pooling_factor = [1, 2.5]
)",
                                "job.toml");
  ASSERT_EQ(c.tables.size(), 2u);
  EXPECT_EQ(c.tables[0].optimizer, (PartSpec{"exact_sgd", R"({"learning_rate":1})"}));
  EXPECT_THAT(c.tables[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(c.tables[1].optimizer, (PartSpec{"adam", R"({"eps":0.1,"beta1":0.5})"}));
  EXPECT_THAT(c.tables[1].ranks, ElementsAre(3));
  EXPECT_THAT(c.tables[1].pooling_factor, ElementsAre(1.0, 2.5));
  EXPECT_EQ(c.tables[1].init_range, 0.5);
}

TEST(Config, UnknownKeysNameFileLineAndTheNearestKey) {
  EXPECT_EQ(error_of("[data]\nreader = \"synthetic\"\nepoch = 3\n"),
            "job.toml:3: unknown key \"epoch\" in [data]; the nearest known key is \"epochs\"");
  EXPECT_EQ(error_of("seed = 3\n"), "job.toml:1: \"seed\" is a key of [job]: write it there");
  EXPECT_EQ(error_of("[modle]\n"), "job.toml:1: unknown key \"modle\"; the nearest known key is \"model\"");
  EXPECT_EQ(error_of("[[table]]\nname = \"t\"\nshading = []\n"),
            "job.toml:3: unknown key \"shading\" in [table]; the nearest known key is \"sharding\"");
  EXPECT_EQ(error_of("[job]\nkernel = \"cpu\"\n"), "job.toml:2: \"kernel\" in [job] is called \"kernel_plugin\" now");
  EXPECT_EQ(error_of("[table_defaults]\nkernels = [\"fused\"]\n"),
            "job.toml:2: \"kernels\" in [table_defaults] is called \"compute_kernels\" now");
  EXPECT_THAT(error_of("", {"runtime.device=cuda"}),
              AllOf(StartsWith("--set runtime.device=cuda: unknown key \"runtime\"; there are \""),
                    HasSubstr("\"job\""), HasSubstr("\"data\"")));
}

TEST(Config, WrongTypesNameTheExpectedOne) {
  EXPECT_EQ(error_of("[data]\nbatch = \"128\"\n"), "job.toml:2: data.batch must be an integer, not a string");
  EXPECT_EQ(error_of("[data]\n\nbatch = 1.5\n"),
            "job.toml:3: data.batch must be an integer, not a floating-point number");
  EXPECT_EQ(error_of("[data]\nshuffle = 1\n"), "job.toml:2: data.shuffle must be true or false, not an integer");
  EXPECT_EQ(error_of("[comm]\ntimeout_s = true\n"), "job.toml:2: comm.timeout_s must be a number, not a boolean");
  EXPECT_EQ(error_of("[model]\ntop_mlp = [1, \"2\"]\n"), "job.toml:2: model.top_mlp must be an integer, not a string");
  EXPECT_EQ(error_of("[model]\ntop_mlp = \"2\"\n"),
            "job.toml:2: model.top_mlp must be an integer or an array of integers, not a string");
  EXPECT_EQ(error_of("job = 3\n"), "job.toml:1: job must be a section, [job], not an integer");
  EXPECT_EQ(error_of("[table]\nname = \"x\"\n"),
            "job.toml:1: table must be a list of tables, each written [[table]], not a table");
  EXPECT_THAT(error_of("[table_defaults]\noptimizer = \"adam\"\n"),
              HasSubstr("job.toml:2: table_defaults.optimizer must be an inline table"));
  EXPECT_EQ(error_of("[table_defaults]\noptimizer = { learning_rate = 1.0 }\n"),
            "job.toml:2: table_defaults.optimizer has no key \"name\"");
}

TEST(Config, RangesAndChoices) {
  EXPECT_EQ(error_of("[data]\nbatch = 0\n"), "job.toml:2: data.batch is 0, but must be between 1 and 2147483647");
  EXPECT_EQ(error_of("[job]\nseed = -1\n"), "job.toml:2: job.seed is -1, but must be at least 0");
  EXPECT_EQ(error_of("[comm]\ntimeout_s = inf\n"), "job.toml:2: comm.timeout_s must be a finite number");
  EXPECT_EQ(error_of("[table_defaults]\npooling = \"avg\"\n"),
            "job.toml:2: table_defaults.pooling is \"avg\", but must be one of auto, sum, mean, none");
  EXPECT_EQ(error_of("[table_defaults]\nrows = 5\n"),
            "job.toml:2: \"rows\" belongs to one table: write it under its [[table]]");
  EXPECT_EQ(error_of("[[table]]\nrows = 5\n"), "job.toml:1: this [[table]] has no name");
  EXPECT_EQ(error_of("[[table]]\nname = \"a\"\n[[table]]\nname = \"a\"\n"),
            "job.toml:3: a second [[table]] is named \"a\"");
}

TEST(Config, NotToml) {
  EXPECT_THAT(error_of("[job]\nseed = = 1\n"), HasSubstr("job.toml:2: not valid TOML: "));
  EXPECT_THAT(error_of("[job]\nseed = = 1\n"), testing::Not(HasSubstr("tessera data describe")));
  EXPECT_THAT(test::refusal([&] { parse_config("click,user\n1,2\n", "clicks.csv", {}); }),
              HasSubstr("`tessera data describe`"));
  EXPECT_THROW(load_config("/nonexistent/job.toml"), Error);
}

TEST(Config, Overrides) {
  const Config c = parse_config(
      kDesignExample, "job.toml",
      {"data.batch=64", "data.batch=32", "comm.backend=tcp", "data.path=/a b/c", "table.film.sharding=column_wise",
       "table_defaults.optimizer.learning_rate=0.25", "table.film.optimizer.eps=1e-3", "model.top_mlp=[8,1]",
       "report.json=", R"(table_defaults.compute_kernel="dense")"});
  EXPECT_EQ(c.data.batch, 32);
  EXPECT_EQ(c.comm.backend, "tcp");
  EXPECT_EQ(c.data.path, "/a b/c");
  EXPECT_THAT(c.tables[0].sharding, ElementsAre("column_wise"));
  EXPECT_EQ(c.tables[0].optimizer.options, R"({"learning_rate":0.25,"eps":0.001})");
  EXPECT_EQ(c.tables[0].compute_kernel, "dense");
  EXPECT_THAT(c.model.top_mlp, ElementsAre(8, 1));
  EXPECT_EQ(c.report.json, "");
}

TEST(Config, OverridesOfTheOptimizer) {
  EXPECT_EQ(parse_config("", "job.toml", {"table_defaults.optimizer.name=adam"}).table_defaults.optimizer,
            (PartSpec{"adam", R"({"learning_rate":0.05,"eps":1e-08})"}));
  EXPECT_EQ(parse_config("", "job.toml", {"table_defaults.optimizer={ name = \"exact_sgd\", learning_rate = 0.5 }"})
                .table_defaults.optimizer,
            (PartSpec{"exact_sgd", R"({"learning_rate":0.5})"}));
  EXPECT_EQ(error_of("", {"table_defaults.optimizer.name=3"}),
            "--set table_defaults.optimizer.name=3: the optimizer's name must be a string, not an integer");
}

TEST(Config, OverridesOfLayersAndHeads) {
  const std::string graph = R"(
[[layer]]
name = "top"
type = "mlp"
inputs = ["dense"]
options = { widths = [8, 1], dropout = 0.5 }
[[head]]
name = "click"
input = "top"
)";
  const Config c =
      parse_config(graph, "job.toml",
                   {"layer.top.options.widths=[4, 1]", "layer.top.options.norm=layer", "layer.top.inputs=pooled",
                    "head.click.label=bought", "head.click.weight=2", "head.click.loss_options.margin=2"});
  EXPECT_EQ(c.heads[0].loss_options.json, R"({"margin":2})");
  EXPECT_EQ(c.layers[0].options.json, R"({"widths":[4,1],"dropout":0.5,"norm":"layer"})");
  EXPECT_THAT(c.layers[0].inputs, ElementsAre("pooled"));
  EXPECT_EQ(parse_config(graph, "job.toml", {R"(layer.top.names={ "*.v" = "net.V.*", b = "c" })"}).layers[0].names.json,
            R"({"*.v":"net.V.*","b":"c"})");
  EXPECT_EQ(
      error_of(graph, {"layer.top.names=over"}),
      "--set layer.top.names=over: layer.top.names must be an inline table like { \"*\" = \"over_arch.model.*\" }, "
      "not a string");
  EXPECT_EQ(c.heads[0].label, "bought");
  EXPECT_EQ(c.heads[0].weight, 2);
  EXPECT_EQ(error_of(graph, {"layer.tpo.type=mlp"}),
            "--set layer.tpo.type=mlp: there is no layer \"tpo\"; the nearest is \"top\"");
  EXPECT_EQ(error_of("", {"head.click.weight=2"}), "--set head.click.weight=2: there is no head \"click\"");
  EXPECT_EQ(error_of(graph, {"layer.type=mlp"}),
            "--set layer.type=mlp: one layer's key is written layer.NAME.key=value");
  EXPECT_THAT(error_of(graph, {"head.click.los=mse"}), HasSubstr("the nearest known key is \"loss\""));
}

TEST(Config, PatternsOfFilesNeedNoQuotes) {
  EXPECT_EQ(parse_config("", "job.toml", {"data.path=days/[0-4]*.csv"}).data.path, "days/[0-4]*.csv");
}

TEST(Config, BadOverrides) {
  EXPECT_EQ(error_of("", {"data.bach=1"}),
            "--set data.bach=1: unknown key \"bach\" in [data]; the nearest known key is \"batch\"");
  EXPECT_EQ(error_of("", {"dta.batch=1"}), "--set dta.batch=1: unknown key \"dta\"; the nearest known key is \"data\"");
  EXPECT_EQ(error_of("", {"data.batch=many"}), "--set data.batch=many: data.batch must be an integer, not a string");
  EXPECT_EQ(error_of("", {"batch=1"}), "--set batch=1: an override has the form section.key=value");
  EXPECT_EQ(error_of("", {"data.batch"}), "--set data.batch: an override has the form section.key=value");
  EXPECT_THAT(error_of("", {"column.price.as=dense"}), HasSubstr("a [[column]] can only be changed in the file; "));
  EXPECT_EQ(error_of("", {"table_defaults.optimizer.learning\xc5rate=1"}),
            "--set: an override must be UTF-8, as the config is");
  EXPECT_EQ(error_of("", {"data..batch=1"}), "--set data..batch=1: an override has the form section.key=value");
  EXPECT_EQ(error_of("", {"data.batch.x=1"}), "--set data.batch.x=1: an override has the form section.key=value");
  EXPECT_EQ(error_of("", {"table.rows=1"}), "--set table.rows=1: one table's key is written table.NAME.key=value");
  EXPECT_THAT(error_of("", {"model.top_mlp=[a]"}), HasSubstr("strings in lists need quotes"));
  EXPECT_EQ(error_of("[[table]]\nname = \"film\"\n", {"table.flim.rows=1"}),
            "--set table.flim.rows=1: there is no table \"flim\"; the nearest is \"film\"");
  EXPECT_THAT(error_of("", {"table.flim.row=1"}), HasSubstr("nearest known key is \"rows\""));
}

TEST(Config, TablesFromTheData) {
  const std::vector<DataColumn> columns = {{"user", 943, "sum"}, {"title.words", 8192, "mean"}};
  const Config c = parse_config("[model]\nembedding_dim = 8\n", "job.toml",
                                {"table.title.words.ranks=[1]", "table.user.optimizer.learning_rate=2.5"});
  const auto tables = tables_of(c, columns);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].rows, 943);
  EXPECT_EQ(tables[0].embedding_dim, 8);
  EXPECT_EQ(tables[0].optimizer.options, R"({"learning_rate":2.5,"eps":1e-08})");
  EXPECT_EQ(tables[1].pooling, "mean");
  EXPECT_THAT(tables[1].features, ElementsAre("title.words"));
  EXPECT_THAT(tables[1].ranks, ElementsAre(1));
  EXPECT_THAT(tables[0].ranks, IsEmpty());
  EXPECT_THROW(tables_of(parse_config("", "x", {"table.usr.ranks=[1]"}), columns), Error);
}

TEST(Config, TablesOfTheFileTakeRowsFromTheirColumn) {
  const std::vector<DataColumn> columns = {{"user", 943, "sum"}, {"film", 1682, "mean"}};
  const auto tables =
      tables_of(parse_config("[[table]]\nname = \"t\"\nfeatures = [\"film\", \"user\"]\n", "x"), columns);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].rows, 1682);
  EXPECT_EQ(tables[0].pooling, "mean");
  EXPECT_EQ(tables_of(parse_config("[[table]]\nname = \"film\"\npooling = \"none\"\n", "x"), columns)[0].pooling,
            "none");
  EXPECT_EQ(tables_of(parse_config("[[table]]\nname = \"a\"\nrows = 3\n", "x"), {})[0].pooling, "sum");
  const auto rounded = [](const std::string& more) {
    return tables_of(parse_config("[[table]]\nname = \"a\"\nrows = 3\nrounding = \"stochastic\"\n" + more, "x"), {})[0]
        .compute_kernel;
  };
  EXPECT_EQ(rounded("data_type = \"bf16\"\n"), "fused?rounding=stochastic");
  EXPECT_THROW(rounded(""), Error) << "float32 is not rounded";
  EXPECT_THROW(rounded("data_type = \"float16\"\ncompute_kernel = \"dense\"\n"), Error);
  EXPECT_THAT(tables_of(parse_config("[[table]]\nname = \"t\"\nfeatures = [\"film\", \"a?draw=all&first=1\"]\n", "x"),
                        columns)[0]
                  .features,
              ElementsAre("film", "a"));
  EXPECT_THROW(tables_of(parse_config("[[table]]\nname = \"a\"\n", "x"), {}), Error);
  EXPECT_THROW(tables_of(parse_config("[[table]]\nname = \"film\"\nfeatures = [\"film\", \"x\"]\n", "x"), columns),
               Error);
  EXPECT_THAT(
      test::refusal(Code::kNotFound, [&] { tables_of(parse_config("[[table]]\nname = \"usr\"\n", "x"), columns); }),
      HasSubstr("the nearest is \"user\""));
}

TEST(Config, PrintedConfigReadsBackEqual) {
  Config c = parse_config(kDesignExample, "job.toml");
  EXPECT_EQ(parse_config(to_toml(c), "again"), c);
  c.data.path = "a \"quoted\" \\ path\n\t\x7f\u00e9";
  c.tables[0].optimizer.options = R"({"a key":"x","list":[1,2.5,true],"sub":{"b":1e-30}})";
  c.tables[0].init_range = 0.1;
  c.model.type = "graph";
  c.layers = {{"top", "mlp", {"dense"}, {}, {}, {R"({"*.v":"net.V.*","2":"x"})"}, true}};
  c.tables[0].max_gradient = 1e20;
  EXPECT_EQ(parse_config(to_toml(c), "again"), c) << to_toml(c);
}

TEST(Config, NearestNames) {
  EXPECT_EQ(sdk::edit_distance("", "abc"), 3u);
  EXPECT_EQ(sdk::edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(sdk::edit_distance("modle", "model"), 1u);
  EXPECT_EQ(sdk::nearest_name("x", {}), "");
  EXPECT_EQ(sdk::nearest_name("rwos", {"name", "rows", "cols"}), "rows");
  EXPECT_EQ(sdk::nearest_name("lr", {"eps", "learning_rate", "eta"}), "learning_rate");
  EXPECT_EQ(sdk::nearest_name("er", {"eps", "learning_rate"}), "eps");
  EXPECT_EQ(sdk::nearest_name("mpl", {"max_pooling", "mlp"}), "mlp");
  EXPECT_EQ(sdk::name_distance("cash", "cache_mib"), 2u);
  EXPECT_EQ(sdk::nearest_name("cash", {"directory", "io", "depth", "shared", "cache_mib", "cache_rows"}), "cache_mib");
  EXPECT_EQ(sdk::nearest_name("sync", {"io", "shared", "directory"}), "shared");
  EXPECT_EQ(sdk::nearest_name("io", {"ab", "directory"}), "directory");
}

TEST(Config, AFolderIsNoFile) {
  EXPECT_THAT(test::refusal([&] { load_config(testing::TempDir()); }), testing::HasSubstr("Is a directory"));
}

// The page and the parser use the same tables, so a new key without documentation fails here.
TEST(Config, DocumentationListsEveryKey) {
  std::ifstream file(TESSERA_CONFIG_PAGE, std::ios::binary);
  ASSERT_TRUE(file) << "no " << TESSERA_CONFIG_PAGE;
  std::stringstream text;
  text << file.rdbuf();
  const std::string marker = "<!-- reference -->\n";
  const size_t start = text.str().find(marker);
  ASSERT_NE(start, std::string::npos);
  EXPECT_EQ(text.str().substr(start + marker.size()), config_reference());
}

// A description stands in a table and in no sentence around it, so it begins and ends like a sentence.
TEST(Config, DescriptionsAreSentences) {
  std::istringstream lines(config_reference());
  size_t keys = 0;
  std::string title;
  for (std::string line, before; std::getline(lines, line); before = line) {
    if (line.starts_with("### ")) title = line;
    if (before.starts_with("### ")) {
      std::getline(lines, line);  // the introduction follows an empty line
      EXPECT_THAT(line, testing::MatchesRegex("[A-Z].+")) << title << " has no introduction";
    }
    if (!line.starts_with("| `")) continue;
    ++keys;
    const std::string about = line.substr(line.rfind(" | ", line.size() - 3) + 3);
    EXPECT_THAT(about, testing::MatchesRegex("([A-Z]|`[^`]+`).+[.`] \\|")) << title << ": " << line;
    EXPECT_THAT(about, testing::Not(testing::MatchesRegex("(Of|What|Where|Whether|That|Who|As|To|In|By) .*"))) << line;
    EXPECT_THAT(about, testing::Not(testing::HasSubstr(" else "))) << line;
  }
  EXPECT_GT(keys, 100U);
}

}  // namespace
}  // namespace tessera
