"""Stands in for pytest-kind: the cluster is the server of KUBECONFIG, which exists already."""


def pytest_addoption(parser):
    parser.addoption("--keep-cluster", action="store_true")
