# SPDX-License-Identifier: Apache-2.0
"""Frameworks in Python, from checkouts in PYTHONPATH: HOW is a function's name. What they import but do not need is stood in for, see stubs.py."""

import os
import shutil
import sys

import stubs  # noqa: F401
import torch

import marks

SAVES = 4


def parts():
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    return model, torch.optim.Adam(model.parameters())


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()


def accelerate():
    """save_state with automatic names, two kept."""
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration
    helper = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=".", automatic_checkpoint_naming=True, total_limit=2))
    model, optimizer = parts()
    model, optimizer, schedule = helper.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))
    for number in range(1, SAVES + 1):
        step(model, optimizer)
        marks.train()
        with marks.save(number):
            helper.save_state()


def utilities_of_lightning():
    """What the trainer really calls of lightning_utilities."""
    import enum
    import importlib.util
    load = importlib.import_module
    top = load("lightning_utilities")
    apply_func, enums, imports, overrides = [load("lightning_utilities.core." + n) for n in ("apply_func", "enums", "imports", "overrides")]

    class StrEnum(str, enum.Enum):
        __str__ = str.__str__

        @classmethod
        def from_str(cls, value, source="key"):
            return next(one for one in cls if value in (one.value, one.name))

        try_from_str = from_str

    def apply_to_collection(data, dtype, function, *arguments, wrong_dtype=None, include_none=True, allow_frozen=False, **named):
        if isinstance(data, dtype):
            return function(data, *arguments, **named)
        if isinstance(data, dict):
            return {k: apply_to_collection(v, dtype, function, *arguments, **named) for k, v in data.items()}
        if isinstance(data, (list, tuple)):
            return type(data)(apply_to_collection(v, dtype, function, *arguments, **named) for v in data)
        return data

    def is_overridden(name, instance, parent):
        return getattr(type(instance), name, None) is not getattr(parent, name, None)

    enums.StrEnum = StrEnum
    apply_func.apply_to_collection = top.apply_to_collection = apply_to_collection
    apply_func.is_dataclass_instance = lambda one: False
    load("lightning_utilities.core.inheritance").get_all_subclasses = lambda base: set(base.__subclasses__())
    overrides.is_overridden = top.is_overridden = is_overridden
    imports.RequirementCache = type("RequirementCache", (), {"__init__": lambda self, *a, **k: None, "__bool__": lambda self: False})
    imports.compare_version = lambda package, operator, version, **named: package == "torch" and operator("2.6.0", version)
    imports.module_available = imports.package_available = top.module_available = lambda name: importlib.util.find_spec(name.split(".")[0]) is not None


def lightning():
    """ModelCheckpoint with save_top_k=2 and save_last, as the trainer calls it."""
    utilities_of_lightning()
    import lightning.pytorch as pl

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = parts()[0]

        def training_step(self, batch, _):
            return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Marked(pl.callbacks.ModelCheckpoint):
        number = 0

        def on_train_epoch_end(self, *arguments):
            self.number += 1
            marks.train()
            with marks.save(self.number):
                super().on_train_epoch_end(*arguments)

    last = {"lightning_link": "link"}.get(sys.argv[1], True)
    saver = Marked(dirpath=".", filename="{epoch}-{step}", monitor="epoch", mode="max", save_top_k=2, save_last=last, save_on_train_epoch_end=True)
    trainer = pl.Trainer(max_epochs=SAVES, accelerator="cpu", callbacks=[saver], logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(16, 32), batch_size=8))


lightning_link = lightning


def sb3():
    """CheckpointCallback with a replay buffer."""
    import gymnasium
    import numpy
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import CheckpointCallback

    class World(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(-1, 1, (4,), numpy.float32), gymnasium.spaces.Discrete(2)
        count = 0

        def reset(self, *, seed=None, options=None):
            return numpy.zeros(4, numpy.float32), {}

        def step(self, action):
            self.count += 1
            return numpy.zeros(4, numpy.float32), 1.0, self.count % 20 == 0, False, {}

    class Marked(CheckpointCallback):
        def _on_step(self):
            if self.n_calls % self.save_freq:
                return super()._on_step()
            marks.train()
            with marks.save(self.n_calls // self.save_freq):
                return super()._on_step()

    saver = Marked(save_freq=100, save_path=".", name_prefix="rl_model", save_replay_buffer=True)
    DQN("MlpPolicy", World(), buffer_size=500, learning_starts=50, policy_kwargs={"net_arch": [8]}).learn(100 * SAVES, callback=saver)


def adaptdl():
    """save_all_states of three states; each restart saves once, in a process of its own."""
    for number in range(SAVES):
        if os.fork() == 0:
            os.environ.update(ADAPTDL_CHECKPOINT_PATH=".", ADAPTDL_NUM_RESTARTS=str(number))
            from adaptdl.checkpoint import State, save_all_states
            model, optimizer = parts()
            step(model, optimizer)

            class Kept(State):
                def __init__(self, name, value):
                    super().__init__(name)
                    self.value = value

                def save(self, fileobj):
                    torch.save(self.value, fileobj)

            kept = [Kept("model", model.state_dict()), Kept("optimizer", optimizer.state_dict()), Kept("epoch", number)]
            marks.train()
            marks.mark("save-%d" % (number + 1))
            save_all_states()
            marks.mark("over-%d" % (number + 1))
            os._exit(0 if kept else 1)
        os.wait()


def timm():
    """CheckpointSaver, two kept; recovery files too with timm_recovery."""
    from timm.utils import CheckpointSaver
    model, optimizer = parts()
    saver = CheckpointSaver(model, optimizer, checkpoint_dir=".", recovery_dir=".", max_history=2)
    for number in range(1, SAVES + 1):
        step(model, optimizer)
        marks.train()
        with marks.save(number):
            if sys.argv[1] == "timm_recovery":
                saver.save_recovery(0, number * 50)
            else:
                saver.save_checkpoint(number, [0.5, 0.7, 0.6, 0.8][number - 1])


timm_recovery = timm


def ignite():
    """Checkpoint with DiskSaver, two kept."""
    from ignite.engine import Engine, Events
    from ignite.handlers import Checkpoint, DiskSaver
    model, optimizer = parts()
    engine = Engine(lambda *_: step(model, optimizer))
    saver = Checkpoint({"model": model, "optimizer": optimizer}, DiskSaver(".", create_dir=False, require_empty=False), n_saved=2)

    @engine.on(Events.EPOCH_COMPLETED)
    def _save(_):
        marks.train()
        with marks.save(engine.state.epoch):
            saver(engine)

    engine.run([0, 1], max_epochs=SAVES)


class Local:
    """iopath's file manager, as far as local files need it."""
    open, exists, isfile, ls, rm = map(staticmethod, (open, os.path.exists, os.path.isfile, os.listdir, os.remove))


def fvcore():
    """PeriodicCheckpointer, two kept, as detectron2 uses it."""
    from fvcore.common.checkpoint import Checkpointer, PeriodicCheckpointer
    model, optimizer = parts()
    checkpointer = Checkpointer(model, ".", optimizer=optimizer)
    checkpointer.path_manager = Local()
    saver = PeriodicCheckpointer(checkpointer, 100, max_to_keep=2)
    for number in range(1, SAVES + 1):
        step(model, optimizer)
        marks.train()
        with marks.save(number):
            saver.step(number * 100 - 1)


def mmengine():
    """CheckpointHook of a runner, two kept."""
    import addict

    class Dict(dict):
        __getattr__, __setattr__ = dict.get, dict.__setitem__

        def __missing__(self, name):
            raise KeyError(name)

    addict.Dict = Dict
    from mmengine.config import Config
    from mmengine.hooks import CheckpointHook
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Net(BaseModel):
        def __init__(self):
            super().__init__()
            self.net = parts()[0]

        def forward(self, inputs, mode="tensor"):
            return {"loss": self.net(inputs).sum()}

    class Marked(CheckpointHook):
        def after_train_epoch(self, runner):
            marks.train()
            with marks.save(runner.epoch + 1):
                super().after_train_epoch(runner)

    Runner._log_env = Runner.dump_config = lambda *_: None
    Config.pretty_text = ""
    Runner(Net(), ".", train_dataloader=torch.utils.data.DataLoader([{"inputs": torch.randn(32)}] * 2), train_cfg={"by_epoch": True, "max_epochs": SAVES},
           optim_wrapper={"optimizer": {"type": "Adam"}}, default_hooks={"checkpoint": Marked(interval=1, max_keep_ckpts=2)}).train()


def keras():
    """BackupAndRestore, and ModelCheckpoint of one file beside it."""
    import keras as program
    import numpy

    class Begin(program.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            marks.train()
            marks.mark("save-%d" % (epoch + 1))

    class End(program.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            marks.mark("over-%d" % (epoch + 1))

    model = program.Sequential([program.layers.Input((32,)), program.layers.Dense(32), program.layers.Dense(1)])
    model.compile("adam", "mse")
    if sys.argv[1] == "keras_backup":
        savers = [program.callbacks.BackupAndRestore("backup", delete_checkpoint=False)]
    else:
        savers = [program.callbacks.ModelCheckpoint("model.keras"), program.callbacks.CSVLogger("log.csv")]
    model.fit(numpy.zeros((16, 32)), numpy.zeros((16, 1)), epochs=SAVES, verbose=0, callbacks=[Begin(), *savers, End()])


keras_backup = keras


def nnunet():
    """nnUNetTrainer.save_checkpoint as on_epoch_end and on_train_end call it."""
    import importlib
    import typing
    files = importlib.import_module("batchgenerators.utilities.file_and_folder_operations")
    files.List, files.join, files.isfile, files.__all__ = typing.List, os.path.join, os.path.isfile, ["List", "join", "isfile"]
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
    trainer = nnUNetTrainer.__new__(nnUNetTrainer)
    trainer.network, trainer.optimizer = parts()
    trainer.local_rank, trainer.disable_checkpointing, trainer.is_ddp, trainer.grad_scaler = 0, False, False, None
    trainer.logger, trainer._best_ema, trainer.my_init_kwargs, trainer.inference_allowed_mirroring_axes = stubs.Anything(), None, {}, None
    trainer.logger.get_checkpoint = dict
    for number in range(1, SAVES + 1):
        trainer.current_epoch = number * 50
        step(trainer.network, trainer.optimizer)
        marks.train()
        with marks.save(number):
            trainer.save_checkpoint("checkpoint_latest.pth" if number < SAVES else "checkpoint_final.pth")
            if number == SAVES:
                os.remove("checkpoint_latest.pth")


def composer():
    """CheckpointSaver of a Trainer, with the link to the latest, two kept."""
    import importlib.metadata
    sys.modules["importlib_metadata"] = importlib.metadata
    from composer import Trainer
    from composer.callbacks import CheckpointSaver
    from composer.models import ComposerModel

    class Net(ComposerModel):
        def __init__(self):
            super().__init__()
            self.net = parts()[0]

        def forward(self, batch):
            return self.net(batch)

        def loss(self, outputs, batch):
            return outputs.sum()

    class Marked(CheckpointSaver):
        number = 0

        def _save_checkpoint(self, *arguments, **named):
            type(self).number += 1
            marks.train()
            with marks.save(self.number):
                super()._save_checkpoint(*arguments, **named)

    saver = Marked(folder=".", filename="ep{epoch}-ba{batch}-rank{rank}.pt", num_checkpoints_to_keep=2, save_interval="1ep", overwrite=True)
    net = Net()
    Trainer(model=net, run_name="run", train_dataloader=torch.utils.data.DataLoader(torch.randn(16, 32), batch_size=8), max_duration="%dep" % SAVES, device="cpu",
            optimizers=torch.optim.Adam(net.parameters()), callbacks=[saver], loggers=[], progress_bar=False, console_stream=os.devnull).fit()


shutil.rmtree("lightning_logs", ignore_errors=True)
globals()[sys.argv[1]]()
